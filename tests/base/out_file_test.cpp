#include "moe/base/out_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "moe/base/check.h"
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

TEST(OutFile, FoldersAboveAreMade) {
  const Scratch scratch;
  make_folders_above(scratch.path("a/b/c.txt"));
  EXPECT_TRUE(fs::is_directory(scratch.path("a/b")));
  make_folders_above("name.txt");
}

}  // namespace
}  // namespace moe
