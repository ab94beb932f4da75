#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/random.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

void put(const std::string& path, const std::string& text) {
  write_whole_file(path, "a file for a test", [&](std::ostream& out) { out << text; });
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

// In a child, whose limits and rights are not this test's; what it threw comes back over a pipe.
std::string message_in_child(const std::function<void()>& restrict, const std::string& path, const std::string& text) {
  int pipe[2];
  if (::pipe(pipe) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    restrict();
    std::string message = "nothing was thrown";
    try {
      put(path, text);
    } catch (const BadInput& error) {
      message = error.what();
    }
    _exit(::write(pipe[1], message.data(), message.size()) < 0);
  }
  ::close(pipe[1]);
  std::string message(4096, '\0');
  const ssize_t size = ::read(pipe[0], message.data(), message.size());
  ::close(pipe[0]);
  int status = 0;
  waitpid(child, &status, 0);
  message.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return message;
}

TEST(WholeFile, ReplacesAFile) {
  const Scratch scratch;
  const std::string path = scratch.path("file");
  put(path, "one");
  EXPECT_EQ(Scratch::read(path), "one");
  const std::string large(1'000'003, 'x');
  put(path, large);
  EXPECT_EQ(Scratch::read(path), large);
  put(path, "");
  EXPECT_EQ(Scratch::read(path), "");
  EXPECT_EQ(names_in(scratch.path("")), std::vector<std::string>{"file"});
}

TEST(WholeFile, RecordsAreNotReplaced) {
  const Scratch scratch;
  const std::string records = "{\"kind\":\"run\",\"schema\":2}\n", path = scratch.write("r.jsonl", records);
  const std::string message = error_of<BadInput>([&] { put(path, "a page"); });
  EXPECT_EQ(message, path + ": found records, expected another name for a file for a test");
  EXPECT_EQ(Scratch::read(path), records);
}

TEST(WholeFile, KeepsTheRightsOfTheOldFile) {
  const Scratch scratch;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  put(scratch.path("new"), "1");
  EXPECT_EQ(mode_of(scratch.path("new")), 0666 & ~mask);
  const std::string old = scratch.write("old", "1");
  ::chmod(old.c_str(), 0640);
  put(old, "2");
  EXPECT_EQ(mode_of(old), mode_t{0640});
}

TEST(WholeFile, FollowsLinksWhereverTheyLead) {
  const Scratch scratch;
  fs::create_directories(scratch.path("far/off"));
  scratch.write("far/off/there", "old");
  fs::create_symlink("off/there", scratch.path("far/second"));
  fs::create_symlink(scratch.path("far/second"), scratch.path("first"));
  fs::create_symlink("far/off/not-yet", scratch.path("dangling"));
  put(scratch.path("first"), "new");
  put(scratch.path("dangling"), "made");
  EXPECT_EQ(Scratch::read(scratch.path("far/off/there")), "new");
  EXPECT_EQ(Scratch::read(scratch.path("far/off/not-yet")), "made");
  for (const char* link : {"first", "far/second", "dangling"})
    EXPECT_TRUE(fs::is_symlink(scratch.path(link))) << link << " is a link still";
  EXPECT_EQ(names_in(scratch.path("far/off")), (std::vector<std::string>{"not-yet", "there"}));
}

TEST(WholeFile, WritesPipesAndDevicesDirectly) {
  const Scratch scratch;
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = Scratch::read(pipe); });
  put(pipe, "through it");
  reader.join();
  EXPECT_EQ(read, "through it");
  EXPECT_TRUE(fs::is_fifo(pipe));
  fs::create_symlink("/dev/null", scratch.path("null"));
  put(scratch.path("null"), "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(names_in(scratch.path("")), (std::vector<std::string>{"null", "pipe"}));
}

// A shell's `--trace /dev/stdout > file`: what else it prints there stays.
TEST(WholeFile, WritesAnOwnDescriptorWhereItStands) {
  const Scratch scratch;
  const std::string path = scratch.path("redirected");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::write(descriptor, "before,", 7), 7);
  put(fmt::format("/dev/fd/{}", descriptor), "between,");
  put(fmt::format("/proc/self/fd/{}", descriptor), "again,");
  ASSERT_EQ(::write(descriptor, "after", 5), 5);
  ::close(descriptor);
  EXPECT_EQ(Scratch::read(path), "before,between,again,after");
}

TEST(WholeFile, SaysWhatCannotBeWrittenAndLeavesAllAsItWas) {
  const Scratch scratch;
  fs::create_directories(scratch.path("folder"));
  fs::create_symlink("folder", scratch.path("to-folder"));
  fs::create_symlink("loop", scratch.path("loop"));
  scratch.write("file", "old");
  const auto before = names_in(scratch.path(""));
  const auto why = [&](const std::string& path) { return error_of<BadInput>([&] { put(path, "text"); }); };
  const auto expected = [](const std::string& path, const char* reason) {
    return fmt::format("{}: cannot be written ({}), expected a file for a test", path, reason);
  };
  const std::tuple<std::string, const char*> refused[] = {{scratch.path("folder"), "Is a directory"},
                                                          {scratch.path("to-folder"), "Is a directory"},
                                                          {scratch.path("folder/"), "Is a directory"},
                                                          {scratch.path("file/below"), "Not a directory"},
                                                          {scratch.path("no/folder"), "No such file or directory"},
                                                          {scratch.path("loop"), "Too many levels of symbolic links"},
                                                          {"", "No such file or directory"},
                                                          {"/dev/full", "No space left on device"},
                                                          {"/dev/fd/999", "No such file or directory"}};
  for (const auto& [path, reason] : refused) EXPECT_EQ(why(path), expected(path, reason));
  EXPECT_EQ(names_in(scratch.path("")), before);
  EXPECT_EQ(Scratch::read(scratch.path("file")), "old");
  EXPECT_TRUE(names_in(scratch.path("folder")).empty());
}

// Wherever the disk is full, the old file is whole and nothing lies beside it.
TEST(WholeFile, ADiskThatIsFullLeavesTheOldFile) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "old");
  for (uint64_t i = 0; i < 40; ++i) {
    const rlim_t room = random_bits(5, 0, i) % 200'000;
    const auto limited = [&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{room, room};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    const std::string text(room + 1 + random_bits(5, 1, i) % 200'000, 'n');
    EXPECT_EQ(message_in_child(limited, path, text),
              path + ": cannot be written (File too large), expected a file for a test");
    ASSERT_EQ(Scratch::read(path), "old") << room;
    ASSERT_EQ(names_in(scratch.path("")), std::vector<std::string>{"file"}) << room;
  }
}

TEST(WholeFile, WhatThrowsLeavesTheOldFile) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "old");
  EXPECT_THROW(write_whole_file(path, "a file",
                                [](std::ostream& out) {
                                  out << std::string(100'000, 'x');
                                  throw WrongResult("not so");
                                }),
               WrongResult);
  EXPECT_EQ(Scratch::read(path), "old");
  EXPECT_EQ(names_in(scratch.path("")), std::vector<std::string>{"file"});
}

TEST(WholeFile, WithoutTheRightsOfRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else for a moment";
  const Scratch scratch;
  const std::string protected_file = scratch.write("protected", "old");
  fs::create_directories(scratch.path("closed"));
  const std::string in_closed = scratch.write("closed/file", "old");
  ::chmod(protected_file.c_str(), 0444);
  ::chmod(in_closed.c_str(), 0666);
  ::chmod(scratch.path("closed").c_str(), 0755);
  ::chmod(scratch.path("").c_str(), 0777);
  for (fs::path above = fs::path(scratch.path("")).parent_path();; above = above.parent_path()) {
    if (struct stat s{}; ::stat(above.c_str(), &s) == 0 && (s.st_mode & 1) == 0) GTEST_SKIP() << above << " is closed";
    if (!above.has_relative_path()) break;
  }
  const auto nobody = [] { (void)!::setegid(65534), (void)!::seteuid(65534); };
  const std::string denied = ": cannot be written (Permission denied), expected a file for a test";
  EXPECT_EQ(message_in_child(nobody, protected_file, "new"), protected_file + denied);
  EXPECT_EQ(Scratch::read(protected_file), "old");
  const std::string absent = scratch.path("closed/absent");
  EXPECT_EQ(message_in_child(nobody, absent, "new"), absent + denied);
  EXPECT_EQ(message_in_child(nobody, in_closed, "new"), "nothing was thrown") << "the file itself may be written";
  EXPECT_EQ(Scratch::read(in_closed), "new");
}

// Readers see one writer's text or another's, never a mixture nor a part; and nothing is left over.
TEST(WholeFile, ManyWritersOfOneFile) {
  const Scratch scratch;
  const std::string path = scratch.path("file");
  constexpr int kWriters = 4, kRounds = 50;
  const auto text = [](int writer) {
    return std::string(150'000 + 1000 * static_cast<size_t>(writer), char('a' + writer));
  };
  put(path, text(0));
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < kRounds; ++i) put(path, text(w));
    });
  for (int i = 0; i < kRounds; ++i) {
    const std::string found = Scratch::read(path);
    ASSERT_FALSE(found.empty());
    EXPECT_TRUE(found == text(found[0] - 'a')) << found.size() << " of " << found[0];
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(names_in(scratch.path("")), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace moe
