// Threads of a group of the products, and the rows and columns that it owns, by the shader and by
// who launches it. Of one row, of few and of many (shaders/products.h); int8: activations rounded
// to int8.
#pragma once
enum ProductTile {
  kNkThreads = 64,
  kNkFewRows = 4,
  kNkOneColumns = 16,
  kNkFewColumns = 32,
  kNkManyThreads = 256,
  kNkManyRows = 32,
  kNkManyColumns = 32,

  kKnThreads = 64,
  kKnFewRows = 4,
  kKnManyRows = 8,
  kKnFewColumns = 64,
  kKnManyColumns = 128,

  kInt8Threads = 64,
  kInt8FewRows = 4,
  kInt8Columns = 16,
  kRoundThreads = 64,

  kMatrixThreads = 128,
  kMatrixFewRows = 8,
  kMatrixManyRows = 32,
  kMatrixColumns = 32,
};
