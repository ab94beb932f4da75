#include "tests/rules/class_sizes.h"

#include <gtest/gtest.h>

namespace moe::rules {
namespace {

constexpr int kMaxClassLines = 300;  // of a class, in however many files

TEST(ClassSizes, NoClassIsTooLarge) {
  int largest = 0;
  for (const auto& [name, lines] : class_sizes(tree_files())) {
    EXPECT_LE(lines, kMaxClassLines) << name;
    largest = std::max(largest, lines);
  }
  EXPECT_GT(largest, kMaxClassLines / 2) << "the tree was not read";
}

TEST(ClassSizes, CountABodyAndItsMembersInAllFiles) {
  const std::vector<TreeFile> files = {
      {"a/one.h",
       "class One final : public Base {  // said\n public:\n  void run();\n};\nstruct Two { int x = 0; };\n"},
      {"a/one.cpp",
       "One::One() = default;\nOne::One(int a)\n    : a_(a) {}\nvoid One::run() {\n  work();\n}\nint free() {\n  "
       "return One::count();\n}\n"},
      {"a/more.cpp", "const std::vector<int>& One::all(int a,\n                             int b) const {\n}\n"},
      {"b/one.cpp", "int One::other() { return 1; }\n"},
      {"a/one.md", "class One {\n"}};
  EXPECT_EQ(class_sizes(files), (std::map<std::string, int>{{"a/One", 4 + 1 + 2 + 3 + 3}, {"a/Two", 1}, {"b/One", 1}}));
}

}  // namespace
}  // namespace moe::rules
