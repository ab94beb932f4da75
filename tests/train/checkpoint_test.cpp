// What one number of ranks writes, any other reads; what was cut off is never taken for whole.
#include "moe/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/tensor/tensor.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

using Axes = std::array<ShardRange, 3>;

constexpr DType kTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t end) { return static_cast<int64_t>(random_bits(seed_, 1, next_++) % end); }

 private:
  uint64_t seed_, next_ = 0;
};

// Cuts an axis at random places, some of them equal: parts may be empty.
std::vector<ShardRange> cut(int64_t total, Dice& dice) {
  std::vector<int64_t> places{0, total};
  for (int64_t parts = dice.below(4); parts > 0; --parts) places.push_back(dice.below(total + 1));
  std::ranges::sort(places);
  std::vector<ShardRange> ranges;
  for (size_t i = 1; i < places.size(); ++i) ranges.push_back({places[i - 1], places[i] - places[i - 1], total});
  return ranges;
}

// A weight's number says where in the whole it lies, its 16 bits as well as they can.
void put(TensorView data, int64_t i, uint64_t bits) { std::memcpy(data.at(i), &bits, bytes_of(data.dtype())); }

struct Whole {
  std::string name;
  std::array<int64_t, 3> extents;
  DType dtype;

  Whole(const std::string& n, Dice& dice)
      : name(n),
        extents{1 + dice.below(5), 1 + dice.below(9), 1 + dice.below(dice.below(2) ? 1 : 11)},
        dtype(kTypes[dice.below(4)]) {}
  uint64_t bits(int64_t i, int64_t j, int64_t k) const {
    return random_bits(stream_of(name), 2, (i * extents[1] + j) * extents[2] + k);
  }
};

// One rank's tensors and their memory.
struct Rank {
  std::vector<Tensor> memory;
  std::vector<ShardedTensor> tensors;

  void add(const Whole& whole, const Axes& axes) {
    memory.push_back(Tensor({axes[0].count, axes[1].count, axes[2].count}, whole.dtype));
    tensors.push_back({whole.name, axes, memory.back()});
  }
  void fill(const std::vector<Whole>& wholes) {
    each(wholes, [](TensorView data, int64_t i, uint64_t bits) { put(data, i, bits); });
  }
  int64_t wrong(const std::vector<Whole>& wholes) {
    int64_t count = 0;
    each(wholes, [&](TensorView data, int64_t i, uint64_t bits) {
      count += std::memcmp(data.at(i), &bits, bytes_of(data.dtype())) != 0 ? 1 : 0;
    });
    return count;
  }
  template <class Body>
  void each(const std::vector<Whole>& wholes, Body&& body) {
    for (const ShardedTensor& t : tensors) {
      const auto whole = std::ranges::find(wholes, t.name, &Whole::name);
      int64_t at = 0;
      for (int64_t i = 0; i < t.axes[0].count; ++i)
        for (int64_t j = 0; j < t.axes[1].count; ++j)
          for (int64_t k = 0; k < t.axes[2].count; ++k)
            body(t.data, at++, whole->bits(t.axes[0].first + i, t.axes[1].first + j, t.axes[2].first + k));
    }
  }
};

std::vector<Whole> random_wholes(Dice& dice) {
  std::vector<Whole> wholes;
  for (int64_t i = 1 + dice.below(5); i > 0; --i) wholes.emplace_back("layer-" + std::to_string(i) + ".w1", dice);
  return wholes;
}

// Gives the boxes of each tensor to ranks by chance, some to two of them; each rank has one box of a tensor at most,
// so there are as many ranks as the tensor with the most boxes needs.
std::vector<Rank> random_shards(const std::vector<Whole>& wholes, Dice& dice) {
  std::vector<Rank> ranks(1);
  for (const Whole& whole : wholes) {
    std::vector<Axes> boxes;
    const auto a = cut(whole.extents[0], dice), b = cut(whole.extents[1], dice), c = cut(whole.extents[2], dice);
    for (const ShardRange& i : a)
      for (const ShardRange& j : b)
        for (const ShardRange& k : c) boxes.push_back({i, j, k});
    if (dice.below(2)) boxes.push_back(boxes[dice.below(static_cast<int64_t>(boxes.size()))]);  // a copy
    if (dice.below(3) == 0) {  // a box that overlaps others
      Axes wide = boxes[0];
      for (size_t axis = 0; axis < 3; ++axis) {
        wide[axis].first = dice.below(whole.extents[axis]);
        wide[axis].count = 1 + dice.below(whole.extents[axis] - wide[axis].first);
      }
      boxes.push_back(wide);
    }
    if (ranks.size() < boxes.size()) ranks.resize(boxes.size());
    const int64_t turn = dice.below(static_cast<int64_t>(ranks.size()));
    for (size_t i = 0; i < boxes.size(); ++i) ranks[(i + turn) % ranks.size()].add(whole, boxes[i]);
  }
  for (Rank& rank : ranks) rank.fill(wholes);
  return ranks;
}

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
  const auto of = [&](const char* name, Axes axes, TensorView data) { return ShardedTensor{name, axes, data}; };
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
