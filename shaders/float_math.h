// The functions of shared/math for one float, as the CPU has them for sixteen.
#pragma once
// Each needs those before it.
// clang-format off
#include "shared/math/scalar.h"
#include "shared/math/exp.h"
#include "shared/math/log.h"
#include "shared/math/tanh.h"
#include "shared/math/erf.h"
#include "shared/math/sincos.h"
#include "shared/math/activations.h"
#include "shared/math/curves.h"
// clang-format on
