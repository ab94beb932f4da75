// YAML as PyYAML has it, and texts that are none.
#include "commands/shared/yaml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tests/base/error_of.h"

namespace moe::commands {
namespace {

std::string kinds_of(const std::string& text) {
  std::string kinds;
  const ConfigFile file = parse_yaml(text, "f.yaml");
  for (const auto& [key, value] : file.root.entries) kinds += fmt::format("{} {}; ", key, describe(value));
  return kinds;
}

TEST(Yaml, ScalarsHaveTheirTypes) {
  EXPECT_EQ(kinds_of("a: 2\nb: -3\nc: 1_000\nd: 2.5\ne: 1e-3\nf: true\ng: No\nh: null\ni:\nj: ~\n"),
            "a 2; b -3; c 1000; d 2.5; e 0.001; f true; g false; h null; i null; j null; ");
  EXPECT_EQ(kinds_of("a: two\nb: '2'\nc: \"true\"\nd: ${TP}\ne: !!str 2\nf: 2 x\ng: .inf\n"),
            "a 'two'; b '2'; c 'true'; d '${TP}'; e '2'; f '2 x'; g '.inf'; ");
  EXPECT_EQ(kinds_of("{a: 1, b: [1, 2]}"), "a 1; b a list of 2; ");
  EXPECT_EQ(kinds_of(""), "");
  EXPECT_EQ(kinds_of("---\n# only a comment\n"), "");
}

TEST(Yaml, ValuesHaveTheirLines) {
  const ConfigFile file = parse_yaml("# a comment\nmodel:\n  a: 1\n\n  b:\n  - 3\n  - 4\n", "f.yaml");
  const ConfigValue& model = *file.root.find("model");
  EXPECT_EQ(model.find("a")->line, 3);
  EXPECT_EQ(model.find("b")->items[1].line, 7);
}

TEST(Yaml, AliasesAndMergeKeysAreCopied) {
  const ConfigFile file =
      parse_yaml("base: &base {a: 1, b: 2}\nnext:\n  <<: *base\n  b: 3\nlist: [*base, *base]\n", "f");
  const ConfigValue& next = *file.root.find("next");
  EXPECT_EQ(next.find("a")->integer, 1);
  EXPECT_EQ(next.find("b")->integer, 3);
  EXPECT_EQ(file.root.find("list")->items[1].find("b")->integer, 2);
}

TEST(Yaml, WhatCannotBeReadIsOneLineWithItsNumber) {
  const auto refused = [](const std::string& text) { return error_of<BadInput>([&] { parse_yaml(text, "f.yaml"); }); };
  for (const auto& [text, said] :
       {std::pair<std::string, std::string>{"a: 1\nb: [1, 2\nc: 3\n", "f.yaml:3: found bad syntax"},
        {"a: 1\n\tb: 2\n", "f.yaml:2: found bad syntax"},
        {"a: 1\nb: *gone\n", "f.yaml:2: found 'gone', expected the name of an anchor above it"},
        {"a: 1\nb: 2\na: 3\n", "f.yaml:3: found 'a' twice, expected it once"},
        {"- 1\n- 2\n", "f.yaml:1: found a list of 2, expected a mapping"},
        {"a: 1\n---\nb: 2\n", "f.yaml:2: found another document, expected one"},
        {"[1, 2]: 3\n", "f.yaml:1: found a key that is no scalar, expected a name"},
        {"a: " + std::string(200, '[') + std::string(200, ']'), "f.yaml:1: found values nested deeper than 100 levels"},
        {"a: \"\xff\"\n", "f.yaml:1: found bad syntax"}}) {
    const std::string error = refused(text);
    EXPECT_TRUE(error.starts_with(said)) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  std::string bomb = "a0: &a0 [1]\n";
  for (int i = 1; i < 40; ++i) bomb += fmt::format("a{}: &a{} [*a{}, *a{}]\n", i, i, i - 1, i - 1);
  EXPECT_NE(refused(bomb).find("values, expected fewer"), std::string::npos);
}

}  // namespace
}  // namespace moe::commands
