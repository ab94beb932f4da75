#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

TEST(OutFile, AFileThatIsReadIsRefusedByWhateverName) {
  const Scratch scratch;
  const std::string file = scratch.path("a.jsonl"), link = scratch.path("link"), other = scratch.path("b.jsonl");
  std::ofstream(file) << "text";
  std::ofstream(other) << "text";
  fs::create_symlink(file, link);
  for (const std::string& out : {file, link, scratch.path("./a.jsonl")}) try {
      require_other_file(out, {"", other, file});
      FAIL() << out;
    } catch (const BadInput& error) {
      EXPECT_EQ(error.what(), out + ": found a file to write that is read too, expected another");
    }
  require_other_file(other, {file, scratch.path("missing")});
  require_other_file("", {file});
  require_other_file(scratch.path("missing"), {scratch.path("missing")});
  require_other_file("/dev/null", {"/dev/null"});
}

TEST(OutFile, NothingElseIsReplaced) {
  const Scratch scratch;
  const std::string file = scratch.path("a"), said = file +
                                                     ": found a file that is no poem, expected a new one, or a "
                                                     "poem to replace";
  require_kind(file, "O ", "poem");
  require_kind(scratch.path("."), "O ", "poem");
  require_kind("/dev/null", "O ", "poem");
  for (const std::string_view text : {"", "O ", "O rose"}) {
    std::ofstream(file) << text;
    require_kind(file, "O ", "poem");
  }
  for (const std::string_view text : {"O", "o rose", "{}"}) try {
      std::ofstream(file) << text;
      require_kind(file, "O ", "poem");
      FAIL() << text;
    } catch (const BadInput& error) {
      EXPECT_EQ(error.what(), said);
    }
}

TEST(OutFile, FoldersAboveAreMade) {
  const Scratch scratch;
  make_folders_above(scratch.path("a/b/c.txt"));
  EXPECT_TRUE(fs::is_directory(scratch.path("a/b")));
  make_folders_above("name.txt");
}

}  // namespace
}  // namespace moe
