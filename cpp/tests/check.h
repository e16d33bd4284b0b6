// The C++ tests' whole framework: named cases, checks that print both sides, a main. Filter:
// ./test_x [substring].
#pragma once
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int n = 0;
  return n;
}
struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};
template <class T>
std::string show(const T& v) {
  std::ostringstream s;
  if constexpr (requires { s << v; }) s << v;
  else s << "?";
  return s.str();
}
inline void fail(const char* file, int line, const std::string& text) {
  if (++failures() <= 20) std::printf("%s:%d: %s\n", file, line, text.c_str());
}

}  // namespace check

#define TEST(name)                                     \
  static void name();                                  \
  static check::Register register_##name(#name, name); \
  static void name()
#define CHECK(c)                                                     \
  do {                                                               \
    if (!(c)) check::fail(__FILE__, __LINE__, "does not hold: " #c); \
  } while (0)
#define CHECK_EQ(a, b)                                                                \
  do {                                                                                \
    const auto va_ = (a); /* a copy: a member of a temporary would dangle */          \
    const auto vb_ = (b);                                                             \
    if (!(va_ == vb_))                                                                \
      check::fail(__FILE__, __LINE__,                                                 \
                  #a " is " + check::show(va_) + " and must be " + check::show(vb_)); \
  } while (0)
// The expression must throw T; `words` must stand in its what().
#define CHECK_THROWS(expr, T, words)                                                           \
  do {                                                                                         \
    bool thrown_ = false;                                                                      \
    try {                                                                                      \
      (void)(expr);                                                                            \
    } catch (const T& e_) {                                                                    \
      thrown_ = true;                                                                          \
      if (!std::strstr(e_.what(), words))                                                      \
        check::fail(__FILE__, __LINE__, std::string("\"" words "\" is not in: ") + e_.what()); \
    }                                                                                          \
    if (!thrown_) check::fail(__FILE__, __LINE__, #expr " must throw " #T);                    \
  } while (0)

int main(int argc, char** argv) {
  int run = 0;
  for (const auto& c : check::cases()) {
    if (argc > 1 && !std::strstr(c.name, argv[1])) continue;
    const int before = check::failures();
    c.run();
    ++run;
    if (check::failures() != before) std::printf("FAILED %s\n", c.name);
  }
  std::printf("%d cases, %d failed checks\n", run, check::failures());
  return check::failures() != 0 || run == 0;
}
