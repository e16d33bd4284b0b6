// The functions of one product in one order: of one row, of few, of many. All give the same bits.
// Few rows share what is read of the weight, many share weights dequantised in threadgroup memory.
#pragma once
#include "product_kn.h"
#include "product_nk.h"

#define PRODUCT_FUNCTION(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define NK_PRODUCT(name, X, Grouped, ...)                                                        \
  PRODUCT_FUNCTION(name "_one", nk_few<X, __VA_ARGS__, 1, kNkOneColumns / 16, Grouped>)          \
  PRODUCT_FUNCTION(name "_few", nk_few<X, __VA_ARGS__, kNkFewRows, kNkFewColumns / 16, Grouped>) \
  PRODUCT_FUNCTION(name "_many", nk_tile<X, __VA_ARGS__, Grouped>)
#define KN_PRODUCT(name, X, Grouped, ...)                                                         \
  PRODUCT_FUNCTION(name "_one", kn_rows<X, __VA_ARGS__, 1, 1, Grouped>)                           \
  PRODUCT_FUNCTION(name "_few", kn_rows<X, __VA_ARGS__, kKnFewRows, kKnFewColumns / 64, Grouped>) \
  PRODUCT_FUNCTION(name "_many", kn_rows<X, __VA_ARGS__, kKnManyRows, kKnManyColumns / 64, Grouped>)
