#include <gtest/gtest.h>

#include "moe/base/config.h"
#include "moe/base/json.h"
#include "moe/base/table.h"
#include "moe/base/text.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

std::string nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

std::string refusal(const std::string& text) {
  return error_of<BadInput>([&] { json_from(text, "f", "JSON"); });
}

TEST(JsonInput, LevelsAreLimited) {
  EXPECT_EQ(json_from(nested(100), "f", "JSON").size(), 1U);
  for (const int levels : {101, 150000})
    EXPECT_EQ(refusal(nested(levels)), "f: byte 101: found values nested deeper than 100 levels, expected fewer");
  EXPECT_EQ(json_from("[\"" + std::string(150000, '[') + "\"]", "f", "JSON").size(), 1U) << "a string has no levels";
  EXPECT_FALSE(json_if_valid(nested(101)));
}

TEST(JsonInput, ValuesAreLimited) {
  std::string list = "[0";
  for (size_t i = 0; i < kMaxValues; ++i) list += ",0";
  EXPECT_NE(refusal(list + "]").find("expected 4000000 at most"), std::string::npos);
}

TEST(JsonInput, AFaultIsNamedByLineAndByte) {
  EXPECT_EQ(refusal("[1, N/A]"), "f: byte 5: found bad syntax at '[1, N', expected JSON");
  EXPECT_EQ(refusal("[1,\n2,\n]"), "f:3: byte 8: found bad syntax at '[1,?2,?]', expected JSON");
  EXPECT_EQ(refusal("[1, 2"), "f: byte 6: found the end of the text, expected JSON");
  EXPECT_EQ(refusal("[1e999]").substr(0, 3), "f: ");
}

TEST(JsonInput, StringsAreRepairedInTheirPlaces) {
  std::string text = "{\"a\x01\xff\\n\xc3\xa4\": [\"\xe2\x82\", \"\n\"]}\n";
  repair_json_strings(text);
  EXPECT_EQ(text, "{\"a?\?\\n\xc3\xa4\": [\"?\?\", \"?\"]}\n");
}

TEST(Toml, LevelsAreLimited) {
  std::string dots, tables;
  for (int i = 0; i < 20000; ++i) {
    dots += "a.";
    tables += "{a.a = ";
  }
  for (const std::string& text : {dots + "a = 1", "[" + dots + "a]", "b = " + nested(20000), "b = " + tables})
    EXPECT_EQ(error_of<BadInput>([&] { parse_toml("x = 1\n" + text, "f"); }),
              "f:2: found values nested deeper than 100 levels, expected fewer");
  EXPECT_NO_THROW(parse_toml("a.b = \"" + dots + "\" # " + dots + "\nc = [[1.5, 2.5], [3.5]]\n", "f"));
  EXPECT_NO_THROW(parse_toml("a = \"\"\"\n" + dots + "\n\"\"\"\nb = '" + dots + "'\n", "f"));
}

TEST(Printable, NothingMovesTheCursor) {
  EXPECT_EQ(printable("a\x1b[2J\r\n\x7f"), "a?[2J??\?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m \xe2\x80\xae"),
            "?1m ?")
      << "of two and three bytes";
  EXPECT_EQ(printable("\xc3\xa4 \xff\xed\xa0\x80"), "\xc3\xa4 ?\?\?\?");
}

TEST(Markdown, ACellIsShownAsItIs) {
  EXPECT_EQ(markdown_text("<b>a|b</b> ![x](y) `c` *d* @e & _f_"),
            "&#60;b&#62;a\\|b&#60;/b&#62; !\\[x\\](y) \\`c\\` \\*d\\* &#64;e &#38; _f_");
}

}  // namespace
}  // namespace moe
