#include "tests/rules/definitions.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/rules/tree.h"

namespace moe::rules {
namespace {

using Names = std::vector<std::string>;

// Two types or functions of one name are one to the linker, which keeps either's code for both.
TEST(Definitions, OfEveryNameThereIsOneInTheWholeTree) {
  std::map<std::string, std::string> first;
  for (const TreeFile& file : tree_files())
    if (is_source(file.path) && !is_stand_in(file.path))
      for (const std::string& name : external_definitions(file.text)) {
        if (name.starts_with("main(")) continue;
        const auto [known, is_new] = first.emplace(name, file.path);
        EXPECT_TRUE(is_new || known->second == file.path)
            << file.path << " defines " << name << ", as " << known->second << " does: one of them goes into a "
            << "namespace of its own";
      }
  EXPECT_GT(first.size(), 1000u) << "the tree was not read";
}

// A class cut over sources obeys the limit on lines and defeats it.
TEST(Definitions, OfAClassStandInOneSource) {
  std::set<std::string> types;
  std::map<std::string, std::set<std::string>> sources;  // by class, of its members
  for (const TreeFile& file : tree_files())
    if (is_source(file.path) && !is_stand_in(file.path))
      for (const std::string& name : external_definitions(file.text)) {
        const size_t member = name.substr(0, name.find('(')).rfind("::");
        if (name.find('(') == std::string::npos)
          types.insert(name);
        else if (member != std::string::npos && !file.path.ends_with(".h"))
          sources[name.substr(0, member)].insert(file.path);
      }
  for (const auto& [type, files] : sources)
    if (types.contains(type)) {
      EXPECT_EQ(files.size(), 1u) << type << " is cut over " << testing::PrintToString(files);
    }
  EXPECT_GT(types.size(), 300u) << "the tree was not read";
}

TEST(Definitions, AreTypesFunctionsAndInlineVariables) {
  EXPECT_EQ(external_definitions(R"text(
#pragma struct Directed {};
#define MADE(name) \
  struct name {};
// struct Commented {};
namespace moe {
struct Declared;
enum class Kind : int { one = '{', two };
class Layer final : public Base {
  struct Inner {};
  void member() {
    struct Local {};
  }
} layer;
template <class T, class U = Pair<int, T>>
struct Box {
  T value{};
};
template <>
struct Box<int> {};
inline constexpr Kind kFirst{Kind::one}, kSecond = Kind::two;
inline constexpr std::string_view kNames[] = {"struct Quoted {"};
constexpr double kOwn = f(1) + 1'000;
double sum(const std::vector<double>& values, Options options = {.deep = 1}, int = 2) { return 0; }
double sum(int count);
decltype(auto) pick(unsigned n) noexcept(true) { return n; }
[[noreturn]] void Layer::end(double (*of)(int), std::pair<int, int> p) const { throw R"(})"; }
Layer::Layer(int n) : Base{n}, values_{1, 2}, more_(n) { run(); }
bool operator==(const Layer& a, const Layer& b) { return true; }
bool Layer::operator()(int n) const { return true; }
namespace detail {
void f() {}
}  // namespace detail
}  // namespace moe
namespace moe::cuda {
__global__ void __launch_bounds__(kThreads) fill(float* to) {}
}  // namespace moe::cuda
extern "C" {
void hook() {}
}
)text"),
            (Names{"moe::Kind", "moe::Layer", "moe::Box", "moe::Box<int>", "moe::kFirst", "moe::kNames",
                   "moe::sum(const std::vector<double>&, Options, int)", "moe::pick(unsigned)",
                   "moe::Layer::end(double(*of)(int), std::pair<int,int>)", "moe::Layer::Layer(int)",
                   "moe::operator==(const Layer&, const Layer&)", "moe::Layer::operator()(int)", "moe::detail::f()",
                   "moe::cuda::fill(float*)", "hook()"}));
}

TEST(Definitions, AreNoneOfAFilesOwn) {
  EXPECT_EQ(external_definitions(R"text(
namespace moe {
namespace {
struct Progress {
  int count;
};
void share(int to) {}
namespace inner {
class Ranking {};
}  // namespace inner
}  // namespace
static int twice(int n) { return 2 * n; }
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
struct Layer;
void run(const Layer& layer);
}  // namespace moe
)text"),
            Names{});
}

TEST(Definitions, TellOverloadsApartAndNotTheNamesOfParameters) {
  const auto of = [](const char* text) { return external_definitions(text).at(0); };
  EXPECT_EQ(of("void f(int a, const T& b) {}"), of("void f(int, const T &other) { g(); }"));
  EXPECT_EQ(of("void f(double) {}"), of("inline void f(double seconds = 1.0) {}"));
  EXPECT_NE(of("void f(int a) {}"), of("void f(long a) {}"));
  EXPECT_NE(of("namespace a { struct S {}; }"), of("namespace b { struct S {}; }"));
}

}  // namespace
}  // namespace moe::rules
