// How kernels over rows are cut, by the shader and by who launches it.
#pragma once
enum RowPart {
  kShortRow = 512,   // rms_norm and l2_norm: shorter rows have sixteen threads each
  kHeldRow = 4096,   // rows up to here have a group that holds them whole
  kSplitRow = 8192,  // argmax and softmax: from here on many groups share a row
  kRowPart = 1024,   // elements of a row that one of them has
  kSumShare = 8,     // of the 256 lanes of a sum, those of one group
};
