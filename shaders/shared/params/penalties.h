// Parameters of the three penalty nodes.
#pragma once
struct PenaltyParams {
  unsigned vocab, history;
};
