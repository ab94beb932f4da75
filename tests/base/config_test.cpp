#include "moe/base/config.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/random.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

constexpr std::string_view kText = R"(name = "x"
count = 3
ratio = 1

[inner]
flag = true
list = [1, 2.5]

[[row]]
a = 1
[[row]]
a = 2
)";

TEST(Config, KeepsKindsAndLines) {
  const ConfigFile file = parse_toml(kText, "f.toml");
  EXPECT_EQ(file.root.find("name")->kind, ConfigKind::text);
  EXPECT_EQ(file.root.find("count")->line, 2);
  const ConfigValue& inner = *file.root.find("inner");
  EXPECT_EQ(inner.find("flag")->kind, ConfigKind::boolean);
  EXPECT_EQ(inner.find("list")->line, 7);
  EXPECT_EQ(inner.find("list")->items[0].kind, ConfigKind::integer);
  EXPECT_EQ(inner.find("list")->items[1].kind, ConfigKind::real);
  EXPECT_EQ(file.root.find("row")->items[0].line, 9);
  EXPECT_EQ(file.root.find("row")->items[1].line, 11);
  EXPECT_EQ(file.root.find("nothing"), nullptr);
}

TEST(Config, ReadsTypedKeys) {
  const ConfigFile file = parse_toml(kText, "f.toml");
  const TableReader root(file, {"name", "count", "ratio", "inner", "row"});
  EXPECT_EQ(root.text("name"), "x");
  EXPECT_EQ(root.integer("count", {.min = 1}), 3);
  EXPECT_EQ(root.real("ratio"), 1.0);
  EXPECT_FALSE(root.optional_real("absent"));
  const TableReader inner = root.table("inner", {"flag", "list"});
  EXPECT_TRUE(inner.boolean("flag"));
  EXPECT_EQ(inner.real_of(inner.list("list")[1], "list"), 2.5);
  const auto rows = root.tables("row", {"a"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].integer("a"), 2);
  EXPECT_TRUE(root.tables("absent", {}).empty());
  EXPECT_FALSE(root.table("absent", {"a"}).has("a"));
}

TEST(Config, ErrorsNameFileLineKeyFoundAndExpected) {
  const ConfigFile file = parse_toml(kText, "f.toml");
  const TableReader root(file, {"name", "count", "ratio", "inner", "row"});
  const TableReader row = root.tables("row", {"a"})[1];
  const auto message = [](auto call) { return error_of<BadInput>(call); };
  EXPECT_EQ(message([&] { root.integer("name"); }), "f.toml:1: name: found 'x', expected a whole number");
  EXPECT_EQ(message([&] { root.integer("count", {.min = 4, .max = 9}); }),
            "f.toml:2: count: found 3, expected a whole number >= 4 and <= 9");
  EXPECT_EQ(message([&] { row.real("a", {.above = 2}); }), "f.toml:12: row.a: found 2, expected a number > 2");
  EXPECT_EQ(message([&] { row.real("b", kPositive); }), "f.toml:11: row.b: found no such key, expected a number > 0");
  EXPECT_EQ(message([&] { root.choice("name", {"y", "z"}); }), "f.toml:1: name: found 'x', expected one of: y, z");
  EXPECT_EQ(message([&] { root.table("inner", {"flag"}); }),
            "f.toml:7: inner.list: found unknown key 'list', expected one of: flag");
  EXPECT_EQ(message([&] { root.table("name", {}); }), "f.toml:1: name: found 'x', expected a table");
  EXPECT_EQ(message([&] { root.list("count"); }), "f.toml:2: count: found 3, expected a list with at least one value");
  EXPECT_EQ(row.where("a"), "f.toml:12: row.a");
}

TEST(Config, JsonHasNoLinesButNumbersItems) {
  const std::string text = R"({"name": "x", "big": 9223372036854775808, "rows": [{"a": 1}, {"a": null}], "at": 3})";
  const ConfigFile file = parse_json(text, "f.json");
  const TableReader root(file, {"name", "big", "rows", "at"});
  EXPECT_EQ(root.text("name"), "x");
  EXPECT_EQ(root.real("big"), 9223372036854775808.0);
  const auto rows = root.tables("rows", {"a"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].integer("a"), 1);
  EXPECT_EQ(error_of<BadInput>([&] { rows[1].integer("a"); }),
            "f.json: rows[1].a: found null, expected a whole number");
  EXPECT_EQ(error_of<BadInput>([&] { rows[1].integer("b"); }),
            "f.json: rows[1].b: found no such key, expected a whole number");
  EXPECT_EQ(error_of<BadInput>([&] { root.tables("at", {}); }), "f.json: at: found 3, expected a list of objects");
  EXPECT_EQ(error_of<BadInput>([&] { root.table("at", {}); }), "f.json: at: found 3, expected an object");
  EXPECT_EQ(error_of<BadInput>([&] { root.integer("rows"); }),
            "f.json: rows: found a list of 2, expected a whole number");
  EXPECT_EQ(error_of<BadInput>([&] { root.table("absent", {"a"}).integer("a"); }),
            "f.json: absent.a: found no such key, expected a whole number");
  EXPECT_EQ(error_of<BadInput>([&] {
              TableReader(file, {"name", "big", "at"});
            }),
            "f.json: rows: found unknown key 'rows', expected one of: name, big, at");
  EXPECT_EQ(error_of<BadInput>([&] { root.integer("big"); }),
            "f.json: big: found 9.223372036854776e+18, expected a whole number");
  EXPECT_EQ(error_of<BadInput>([] { parse_json("[1]", "f.json"); }), "f.json: found a list of 1, expected an object");
  EXPECT_EQ(error_of<BadInput>([] { parse_json("{\"a\": }", "f.json"); }),
            "f.json: byte 7: found bad syntax at '{\"a\": }', expected JSON");
}

TEST(Config, NumbersAreFinite) {
  const ConfigFile file = parse_toml("a = nan\nb = inf\n", "f.toml");
  const TableReader root(file, {"a", "b"});
  EXPECT_EQ(error_of<BadInput>([&] { root.real("a"); }), "f.toml:1: a: found nan, expected a number");
  EXPECT_EQ(error_of<BadInput>([&] { root.real("b", kPositive); }), "f.toml:2: b: found inf, expected a number > 0");
}

TEST(Config, MessagesStayOnOneLine) {
  const ConfigFile file = parse_toml("a = \"x\\ny\\u0007\u00e9" + std::string(100, 'z') + "\"\n", "f.toml");
  const TableReader root(file, {"a"});
  const auto message = error_of<BadInput>([&] { root.text("a"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 140u);
  EXPECT_NE(message.find("'x?y???zzz"), std::string::npos) << message;
}

TEST(Config, BadSyntaxNamesTheLine) {
  for (const std::string_view text : {"a = 1\nb = = 2\n", "a = 1\nb = \"open\n", "a = 1\na = 2\n", "a = 1\n[b\n"}) {
    const auto message = error_of<BadInput>([&] { parse_toml(text, "f.toml"); });
    EXPECT_TRUE(message.starts_with("f.toml:2: found bad syntax (") || message.starts_with("f.toml:3: ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Config, UnreadableFilesAreBadInput) {
  const Scratch scratch;
  EXPECT_THROW(read_toml(scratch.path("absent.toml")), BadInput);
  EXPECT_THROW(read_toml(scratch.path("")), BadInput);
  EXPECT_THROW(read_toml(scratch.write("binary.toml", std::string("a = 1\n\0\xff\xfe", 9))), BadInput);
  EXPECT_TRUE(read_toml(scratch.write("empty.toml", "")).root.entries.empty());
}

TEST(Config, DoublesSurviveTheirText) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const double value = std::exp(200 * (random_uniform(1, 2, i) - 0.5)) * (1 + random_uniform(1, 3, i));
    const ConfigFile file = parse_toml(fmt::format("a = {}\n", value), "f.toml");
    ASSERT_EQ(file.root.find("a")->real, value);
  }
}

TEST(ConfigFiles, FindsByNameOrPath) {
  const Scratch scratch;
  const std::string own = scratch.write("mine.toml", "a = 1\n");
  EXPECT_EQ(find_config("clusters", own), own);
  EXPECT_TRUE(find_config("clusters", "testbed-b").ends_with("/clusters/testbed-b.toml"));
  const auto message = error_of<BadInput>([] { find_config("clusters", "testbed-c"); });
  EXPECT_TRUE(message.starts_with("cluster: found 'testbed-c', expected a file or one of: a100-8, a800, b200-8, "))
      << message;
  EXPECT_EQ(message.find("testbed-bb"), std::string::npos);
  const auto besides = error_of<BadInput>([] { find_config("clusters", "testbed-c", {"testbed-bb", "a"}); });
  EXPECT_TRUE(besides.starts_with("cluster: found 'testbed-c', expected a file or one of: a, a100-8, ")) << besides;
  EXPECT_NE(besides.find(", testbed-b, testbed-bb"), std::string::npos) << besides;
}

TEST(ConfigFiles, TheEnvironmentChoosesTheFolder) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("clusters"));
  scratch.write("clusters/only.toml", "");
  ::setenv("MOETUNE_CONFIG_DIR", scratch.path("").c_str(), 1);
  EXPECT_EQ(config_names("clusters"), std::vector<std::string>{"only"});
  EXPECT_TRUE(config_names("grids").empty());
  ::setenv("MOETUNE_CONFIG_DIR", "/nowhere", 1);
  EXPECT_THROW(config_dir(), BadInput);
  ::unsetenv("MOETUNE_CONFIG_DIR");
}

}  // namespace
}  // namespace moe
