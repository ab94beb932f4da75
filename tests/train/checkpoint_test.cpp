// What one number of ranks writes, any other reads; what was cut off is never taken for whole.
#include "moe/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <vector>

#include "moe/base/check.h"
#include "moe/tensor/tensor.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/train/random_parts.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

Checkpoint write_all(const std::string& folder, int64_t step, const std::vector<Rank>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    write_checkpoint(folder, step, static_cast<int>(rank), ranks[rank].tensors);
  return complete_checkpoint(folder, step, static_cast<int>(ranks.size()), "settings of " + std::to_string(step));
}

TEST(Checkpoint, IsReadIntoAnyOtherSharding) {
  const Scratch scratch;
  int64_t elements = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Dice dice(seed);
    const std::vector<Whole> wholes = random_wholes(dice);
    write_all(scratch.path("run"), static_cast<int64_t>(seed), random_shards(wholes, dice));
    const auto newest = newest_checkpoint(scratch.path("run"));
    ASSERT_TRUE(newest && newest->step == static_cast<int64_t>(seed));
    EXPECT_EQ(newest->settings, "settings of " + std::to_string(seed));
    for (Rank& rank : random_shards(wholes, dice)) {
      for (const ShardedTensor& t : rank.tensors) {
        std::memset(t.data.data(), 0xAB, t.data.bytes());
        elements += t.data.elements();
      }
      read_checkpoint(*newest, rank.tensors);
      ASSERT_EQ(rank.wrong(wholes), 0) << "seed " << seed;
    }
  }
  EXPECT_GT(elements, 20'000);
}

std::string only_line(const std::string& text) {
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

struct RunFolder {
  Scratch scratch;
  std::string folder = scratch.path("run");
  Dice dice{1};
  std::vector<Whole> wholes = random_wholes(dice);
  std::vector<Rank> ranks = random_shards(wholes, dice);

  std::string file(int64_t step, const std::string& name) const {
    return fmt::format("{}/step-{:06}/{}", folder, step, name);
  }
  int64_t newest() const {
    const auto found = newest_checkpoint(folder);
    return found ? found->step : -1;
  }
};

TEST(Checkpoint, NewestTwoStay) {
  RunFolder run;
  EXPECT_EQ(run.newest(), -1);
  write_checkpoint(run.folder, 5, 0, run.ranks[0].tensors);  // a run that was killed here
  EXPECT_EQ(run.newest(), -1);
  for (const int64_t step : {10, 20, 30, 1'000'000}) {
    write_all(run.folder, step, run.ranks);
    EXPECT_EQ(run.newest(), step);
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run.folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"step-000030", "step-1000000"}));
}

// Changes one bit in the middle of a file, whose size stays.
void flip_bit(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(middle);
  const char changed = static_cast<char>(file.get() ^ 4);
  file.seekp(middle).put(changed);
}

// Of what is torn none counts as one of the two, and what others put there stays.
TEST(Checkpoint, TornOnesArePassedOverAndDoNotPushOutWholeOnes) {
  RunFolder run;
  run.ranks.resize(3);
  fs::create_directories(run.folder + "/step-x");
  const auto tear = [&](int64_t step, const auto& damage) {
    write_all(run.folder, step, run.ranks);
    damage(step);
    EXPECT_EQ(run.newest(), 2) << step;
  };
  write_all(run.folder, 1, run.ranks);
  write_all(run.folder, 2, run.ranks);
  tear(3, [&](int64_t s) { fs::remove(run.file(s, "manifest.json")); });
  tear(4, [&](int64_t s) { fs::remove(run.file(s, "rank-1.safetensors")); });
  tear(5, [&](int64_t s) { fs::resize_file(run.file(s, "rank-2.safetensors"), 20); });
  tear(6, [&](int64_t s) { fs::resize_file(run.file(s, "manifest.json"), 40); });
  tear(7, [&](int64_t s) { run.scratch.write(fmt::format("run/step-{:06}/manifest.json", s), "[1, 2]"); });
  tear(8, [&](int64_t s) {
    fs::copy(run.file(2, "manifest.json"), run.file(s, "manifest.json"), fs::copy_options::overwrite_existing);
  });
  tear(9, [&](int64_t s) { write_checkpoint(run.folder, s, 1, run.ranks[1].tensors); });  // a second run, killed
  tear(10, [&](int64_t s) { flip_bit(run.file(s, "rank-1.safetensors")); });
  for (const auto& folder : {"step-000003", "step-000010"}) fs::remove_all(run.folder + "/" + folder);
  write_all(run.folder, 10, run.ranks);
  EXPECT_EQ(run.newest(), 10);
  EXPECT_TRUE(fs::exists(run.file(2, "manifest.json")));
  EXPECT_FALSE(fs::exists(run.file(1, "manifest.json")));
  EXPECT_TRUE(fs::exists(run.folder + "/step-x"));
  EXPECT_TRUE(only_line(error_of<BadInput>([&] {
                complete_checkpoint(run.folder, 11, 3, "");
              })).starts_with(run.file(11, "rank-0.safetensors") + ": found no such file"));
}

// A training that finds none of its checkpoints readable must not begin again without a word.
TEST(Checkpoint, OnesThatCannotBeReadAreNoFreshStart) {
  const auto with = [](const auto& damage) {
    RunFolder run;
    run.ranks.resize(2);
    write_all(run.folder, 4, run.ranks);
    damage(run);
    const std::string line = only_line(error_of<BadInput>([&] { newest_checkpoint(run.folder); }));
    EXPECT_TRUE(line.starts_with(run.folder + "/step-000004: ")) << line;
    write_all(run.folder, 5, run.ranks);
    EXPECT_EQ(run.newest(), 5);
  };
  const auto flips = [](const char* name) { return [name](RunFolder& run) { flip_bit(run.file(4, name)); }; };
  with(flips("rank-0.safetensors"));
  with(flips("rank-1.safetensors"));
  with(flips("manifest.json"));
  with([](RunFolder& run) { fs::resize_file(run.file(4, "rank-1.safetensors"), 30); });
  with([](RunFolder& run) { fs::remove(run.file(4, "rank-0.safetensors")); });
  for (const char* text : {"", "garbage", "{}", "[[[["})
    with([text](RunFolder& run) { run.scratch.write("run/step-000004/manifest.json", text); });
}

TEST(Checkpoint, KilledAnywhereLeavesTheOneBefore) {
  RunFolder run;
  write_all(run.folder, 1, run.ranks);
  const auto ranks = static_cast<int>(run.ranks.size());
  for (int killed = 0; killed < ranks; ++killed) {
    for (int rank = 0; rank < killed; ++rank) write_checkpoint(run.folder, 2, rank, run.ranks[rank].tensors);
    EXPECT_EQ(run.newest(), 1);
  }
  write_all(run.folder, 2, run.ranks);
  EXPECT_EQ(run.newest(), 2);
}

TEST(Checkpoint, SettingsAreAnyText) {
  RunFolder run;
  write_checkpoint(run.folder, 0, 0, run.ranks[0].tensors);
  const std::string text = "{\"a\": \"\\\\ \xC3\xA9\"}\n\t\x01";
  complete_checkpoint(run.folder, 0, 1, text);
  EXPECT_EQ(newest_checkpoint(run.folder)->settings, text);
}

// One tensor of 4 x 6 on two ranks: what else might be asked for.
TEST(Checkpoint, WhatDoesNotFitIsNamed) {
  const Scratch scratch;
  const Tensor half({2, 6, 1}, DType::float32), whole({4, 6, 1}, DType::float32), wide({4, 6, 1}, DType::float64);
  const ShardRange columns{0, 6, 6}, one{0, 1, 1}, rows{0, 4, 4};
  const auto of = [&](const char* name, ShardAxes axes, TensorView data) { return ShardedTensor{name, axes, data}; };
  write_checkpoint(scratch.path("r"), 7, 0, std::vector{of("w", {ShardRange{0, 2, 4}, columns, one}, half)});
  write_checkpoint(scratch.path("r"), 7, 1, std::vector{of("v", {ShardRange{2, 2, 4}, columns, one}, half)});
  const Checkpoint checkpoint = complete_checkpoint(scratch.path("r"), 7, 2, "");
  const auto fails = [&](const ShardedTensor& wanted) {
    return only_line(error_of<BadInput>([&] { read_checkpoint(checkpoint, {&wanted, 1}); }));
  };
  const std::string file = checkpoint.folder + "/rank-0.safetensors";
  EXPECT_EQ(fails(of("w", {rows, columns, one}, whole)),
            checkpoint.folder + ": w: found no part with element (2, 0, 0), expected one of 0+4/4 0+6/6 0+1/1");
  EXPECT_EQ(fails(of("u", {ShardRange{1, 2, 4}, columns, one}, half)),
            checkpoint.folder + ": u: found no part with element (1, 0, 0), expected one of 1+2/4 0+6/6 0+1/1");
  EXPECT_EQ(fails(of("w", {rows, columns, one}, wide)), file + ": w: found type F32, expected F64");
  EXPECT_EQ(fails(of("w", {ShardRange{0, 4, 8}, columns, one}, whole)),
            file + ": w: axis 0: found 4 in the whole, expected 8");
  EXPECT_TRUE(fails(of("w", {rows, columns, one}, half)).starts_with("w: found 12 elements"));
  EXPECT_TRUE(fails(of("w", {ShardRange{3, 2, 4}, columns, one}, half)).starts_with("w: found axes 3+2/4"));
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_TRUE(fails(of("w", {ShardRange{0, 2, 4}, columns, one}, half)).starts_with(file + ": 'w': found"));
  fs::remove(file);
  EXPECT_TRUE(fails(of("w", {ShardRange{0, 2, 4}, columns, one}, half)).starts_with(file + ": cannot be read"));
}

TEST(Checkpoint, AFolderThatCannotBeMadeIsNamed) {
  const Scratch scratch;
  const std::string file = scratch.write("file", "");
  EXPECT_TRUE(only_line(error_of<BadInput>([&] { write_checkpoint(file, 1, 0, {}); })).starts_with(file));
}

}  // namespace
}  // namespace moe
