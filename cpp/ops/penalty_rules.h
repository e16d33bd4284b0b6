// What the three penalty nodes of sample() share.
#pragma once
#include "ops/rules.h"
#include "shared/params/penalties.h"
