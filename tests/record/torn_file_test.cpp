// Files as a killed writer leaves them: cut anywhere, and written by processes that really are killed.
#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/base/random.h"
#include "moe/record/reader.h"
#include "moe/record/writer.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/record/sample_records.h"

namespace moe {
namespace {

constexpr int kCases = 5;

std::string whole_run(const Scratch& scratch) {
  RecordWriter writer(scratch.path("whole.jsonl"), asking("d"));
  for (int i = 0; i < kCases; ++i) writer.append(sample_case(i));
  writer.end();
  return Scratch::read(writer.path());
}

size_t lines_in(std::string_view text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(TornFile, IsReadableWhereverItIsCut) {
  const Scratch scratch;
  const std::string whole = whole_run(scratch);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::string path = scratch.write("cut.jsonl", whole.substr(0, size));
    const auto runs = read_runs(path);
    // A line counts from its closing brace on, even without its newline.
    const size_t complete = lines_in(whole.substr(0, size) + (size < whole.size() && whole[size] == '\n' ? "\n" : ""));
    ASSERT_EQ(runs.size(), complete >= 1 ? 1u : 0u) << size;
    if (runs.empty()) continue;
    ASSERT_EQ(runs[0].cases.size(), std::min<size_t>(complete - 1, kCases)) << size;
    ASSERT_EQ(runs[0].ended, complete == kCases + 2) << size;
  }
}

// Of groups too a killed writer leaves whole ones, and the next run adds the others.
TEST(TornFile, GroupsAreThereWholeOrNotAtAll) {
  const Scratch scratch;
  constexpr int kGroups = 4;
  const auto append_missing = [](RecordWriter& writer) {
    for (int i = 0; i < kGroups; ++i) {
      CaseGroup group = sample_group(i);
      std::erase_if(group.cases, [&](const CaseRecord& record) { return writer.find(record.key) != nullptr; });
      writer.append(group);
    }
    writer.end();
  };
  std::string whole;
  {
    RecordWriter writer(scratch.path("whole.jsonl"), asking("d"));
    append_missing(writer);
    whole = Scratch::read(writer.path());
  }
  for (size_t size = whole.find('\n') + 1; size + 1 < whole.size(); size += 37) {
    const std::string path = scratch.write("cut.jsonl", whole.substr(0, size));
    const size_t complete = lines_in(whole.substr(0, size) + (whole[size] == '\n' ? "\n" : "")) - 1;
    ASSERT_EQ(read_last_run(path).cases.size(), 4 * complete) << size;
    {
      RecordWriter writer(path, asking("d"));
      append_missing(writer);
    }
    const auto run = read_last_run(path);
    ASSERT_TRUE(run.ended);
    ASSERT_EQ(run.cases.size(), size_t{4 * kGroups}) << size;
  }
}

TEST(TornFile, IsResumedWhereverItIsCut) {
  const Scratch scratch;
  const std::string whole = whole_run(scratch);
  // Without its last newline alone it is whole, and nothing is left to resume.
  for (size_t size = 0; size + 1 < whole.size(); size += 97) {
    const std::string cut = whole.substr(0, size);
    const std::string path = scratch.write("cut.jsonl", cut);
    const auto before = read_runs(path);
    {
      RecordWriter writer(path, asking("d"));
      ASSERT_EQ(writer.resumed(), !before.empty());
      ASSERT_EQ(writer.done(), before.empty() ? 0 : before[0].cases.size());
      for (int i = 0; i < kCases; ++i)
        if (!writer.find(sample_case(i).key)) writer.append(sample_case(i));
      writer.end();
    }
    const auto runs = read_runs(path);
    ASSERT_EQ(runs.size(), 1u) << size;
    ASSERT_TRUE(runs[0].ended);
    ASSERT_EQ(runs[0].cases.size(), size_t{kCases});
    ASSERT_TRUE(Scratch::read(path).starts_with(cut)) << "nothing is overwritten";
  }
}

TEST(TornFile, StaysReadableWhenResumingIsKilledToo) {
  const Scratch scratch;
  const std::string whole = whole_run(scratch);
  const std::string torn = whole.substr(0, whole.find('\n') + 100);
  for (const std::string_view tail :
       {"\n", "\n{", "\n{\"kind\":\"res", "\n{\"kind\":\"res\n{\"kind\":\"resume\",\"sta"}) {
    const std::string path = scratch.write("cut.jsonl", torn + std::string(tail));
    ASSERT_EQ(read_runs(path).size(), 1u) << tail;
    RecordWriter writer(path, asking("d"));
    ASSERT_TRUE(writer.resumed());
    writer.append(sample_case(0));
    ASSERT_EQ(read_runs(path).at(0).resumed, 1);
  }
}

TEST(TornFile, ATornLineInTheMiddleOfARunIsAnError) {
  const Scratch scratch;
  const std::string whole = whole_run(scratch);
  const size_t second = whole.find('\n', whole.find('\n') + 1);
  const std::string path = scratch.write("cut.jsonl", whole.substr(0, second - 20) + whole.substr(second));
  const auto message = error_of<BadInput>([&] { read_runs(path); });
  EXPECT_TRUE(message.starts_with(path + ":2: record: byte ")) << message;
  EXPECT_TRUE(message.ends_with(": found the end of the text, expected one JSON object")) << message;
}

// All kills together come before the work can be done: 20 x 20 ms < 2000 x 250 us. A busy machine may not let a writer
// begin in that time: then more of them, which live longer.
constexpr int kKills = 20, kMostKills = 400, kKilledCases = 2000;
constexpr std::chrono::microseconds kCaseTime{250}, kLongestLife{20'000};

// What a child process does until it is killed: every case of the run that is not done yet.
[[noreturn]] void work(const std::string& path) {
  try {
    RecordWriter writer(path, asking("d"));
    for (int i = 0; i < kKilledCases; ++i) {
      if (writer.find(sample_case(i).key)) continue;
      writer.append(sample_case(i));
      std::this_thread::sleep_for(kCaseTime);
    }
    writer.end();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

int run_child(const std::string& path, std::chrono::microseconds until_killed) {
  const pid_t child = ::fork();
  if (child == 0) work(path);
  std::this_thread::sleep_for(until_killed);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(TornFile, SurvivesTwentyKilledWriters) {
  const Scratch scratch;
  const std::string path = scratch.path("killed.jsonl");
  size_t done = 0;
  for (uint64_t i = 0; i < kKills || (done == 0 && i < kMostKills); ++i) {
    const double share = random_uniform(5, random_stream_id("kill"), i) * static_cast<double>(1 + i / kKills);
    const int status = run_child(path, std::chrono::microseconds(int(share * double(kLongestLife.count()))));
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself, with " << status;
    if (!std::filesystem::exists(path)) continue;  // killed before it began
    const auto runs = read_runs(path);
    if (runs.empty()) continue;
    ASSERT_EQ(runs.size(), 1u) << "resumed, not begun anew";
    ASSERT_GE(runs[0].cases.size(), done) << "what was done stays done";
    done = runs[0].cases.size();
  }
  EXPECT_GT(done, 0u);
  int status = 0;
  const pid_t child = ::fork();
  if (child == 0) work(path);
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const auto run = read_last_run(path);
  EXPECT_TRUE(run.ended);
  ASSERT_EQ(run.cases.size(), size_t{kKilledCases});
  for (int i = 0; i < kKilledCases; ++i) ASSERT_TRUE(same(run.cases[i], sample_case(i)));
  // Each case was written exactly once, apart from lines that a kill tore: nothing that was done was done again.
  size_t written = 0;
  std::istringstream lines(Scratch::read(path));
  for (std::string line; std::getline(lines, line);)
    written += line.starts_with("{\"kind\":\"case\"") && json_if_valid(line).has_value();
  EXPECT_EQ(written, size_t{kKilledCases});
}

}  // namespace
}  // namespace moe
