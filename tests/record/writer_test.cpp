#include "moe/record/writer.h"

#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/record/reader.h"
#include "tests/base/scratch.h"
#include "tests/record/sample_records.h"

namespace moe {
namespace {

const std::vector<std::string> kArgv{"moetune", "tune"};

TEST(RecordWriter, WritesARunThatReadsBack) {
  const Scratch scratch;
  const std::string path = scratch.path("new/folder/r.jsonl");
  {
    RecordWriter writer(path, kArgv, "d1", {{"backend", "gloo"}});
    EXPECT_FALSE(writer.resumed());
    for (int i = 0; i < 3; ++i) writer.append(sample_case(i));
    writer.end();
  }
  const auto runs = read_runs(path);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(runs[0].ended);
  EXPECT_EQ(runs[0].header.argv, kArgv);
  EXPECT_EQ(runs[0].header.ranks.text("backend", ""), "gloo");
  ASSERT_EQ(runs[0].cases.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(runs[0].cases[static_cast<size_t>(i)], sample_case(i)));
  EXPECT_EQ(runs[0].cases[0].where, path + ":2");
}

TEST(RecordWriter, EachLineIsThereAtOnce) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"), kArgv, "d1");
  EXPECT_EQ(read_last_run(writer.path()).cases.size(), 0u);
  writer.append(sample_case(0));
  EXPECT_EQ(read_last_run(writer.path()).cases.size(), 1u);
}

TEST(RecordWriter, GoesOnWithARunThatWasBrokenOff) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  {
    RecordWriter writer(path, kArgv, "d1");
    writer.append(sample_case(0));
    CaseRecord failed = sample_case(1);
    failed.status = CaseStatus::timeout;
    writer.append(failed);
  }
  RecordWriter writer(path, kArgv, "d1");
  EXPECT_TRUE(writer.resumed());
  EXPECT_EQ(writer.done(), 1u);
  ASSERT_NE(writer.find("case-0"), nullptr);
  EXPECT_TRUE(same(*writer.find("case-0"), sample_case(0)));
  EXPECT_EQ(writer.find("case-1"), nullptr) << "what failed is tried again";
  EXPECT_THROW(writer.append(sample_case(0)), WrongResult);
  writer.append(sample_case(1));
  EXPECT_NE(writer.find("case-1"), nullptr);
  writer.end();

  const auto run = read_last_run(path);
  EXPECT_EQ(run.resumed, 1);
  EXPECT_TRUE(run.ended);
  ASSERT_EQ(run.cases.size(), 2u);
  EXPECT_EQ(run.cases[1].status, CaseStatus::ok) << "the later record of a key counts";
}

TEST(RecordWriter, AnEndedRunOrAnotherDigestBeginsAnew) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  {
    RecordWriter writer(path, kArgv, "d1");
    writer.append(sample_case(0));
    writer.end();
    EXPECT_THROW(writer.append(sample_case(1)), WrongResult);
    EXPECT_THROW(writer.end(), WrongResult);
  }
  const std::string before = Scratch::read(path);
  for (const char* digest : {"d1", "d2", "d1"}) {
    RecordWriter writer(path, kArgv, digest);
    EXPECT_FALSE(writer.resumed());
    EXPECT_EQ(writer.find("case-0"), nullptr);
  }
  EXPECT_EQ(read_runs(path).size(), 4u);
  EXPECT_TRUE(Scratch::read(path).starts_with(before)) << "nothing is overwritten";
}

TEST(RecordWriter, AKeyComesOncePerRun) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"), kArgv, "d1");
  writer.append(sample_case(0));
  EXPECT_THROW(writer.append(sample_case(0)), WrongResult);
}

TEST(RecordWriter, LeavesOtherFilesAlone) {
  const Scratch scratch;
  for (const std::string_view text : {"# a readme\n", "{\"a\": 1}\n", "x", "{\"kind\":\"end\",\"ended\":\"\"}"}) {
    const std::string path = scratch.write("other", text);
    EXPECT_THROW(RecordWriter(path, kArgv, "d"), BadInput) << text;
    EXPECT_EQ(Scratch::read(path), text);
  }
  EXPECT_THROW(RecordWriter(scratch.path(""), kArgv, "d"), BadInput) << "a folder";
  EXPECT_THROW(RecordWriter("/dev/null", kArgv, "d"), BadInput);
  EXPECT_THROW(RecordWriter(scratch.path("other/below"), kArgv, "d"), BadInput) << "below a file";
}

TEST(RecordWriter, AFileHasOneWriter) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  auto first = std::make_unique<RecordWriter>(path, kArgv, "d");
  const auto message = message_of<BadInput>([&] { RecordWriter(path, kArgv, "d"); });
  EXPECT_NE(message.find("in use by another process"), std::string::npos);
  first.reset();
  EXPECT_NO_THROW(RecordWriter(path, kArgv, "d"));
}

}  // namespace
}  // namespace moe
