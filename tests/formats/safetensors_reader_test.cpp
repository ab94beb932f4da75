// Against what is written, and against headers that are wrong by design and by chance.
#include <cstring>
#include <filesystem>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/formats/safetensors.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data, 'x');
}

TEST(SafeTensorsFile, ReadsWhatIsWritten) {
  const Scratch scratch;
  constexpr std::string_view kTypes[] = {"F64", "F32", "F16", "BF16", "I64", "I32"};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t next = 0;
    const auto below = [&](uint64_t end) { return random_bits(seed, 1, next++) % end; };
    std::vector<std::vector<std::byte>> memory(below(6));
    std::vector<SafeTensor> written;
    TensorNotes notes;
    for (auto& bytes : memory) {
      SafeTensor t{.name = "t " + std::to_string(written.size()), .type = kTypes[below(6)], .shape = {}, .data = {}};
      auto size = static_cast<uint64_t>(*bytes_of_safetensor(t.type));
      for (uint64_t axes = below(4); axes > 0; --axes) {
        t.shape.push_back(static_cast<int64_t>(below(7)));
        size *= t.shape.back();
      }
      for (uint64_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(below(256)));
      t.data = bytes;
      if (below(2)) notes[t.name] = "0+" + std::to_string(below(100)) + "/7 {note}";
      written.push_back(t);
    }
    write_safetensors(scratch.path("t"), written, notes);
    SafeTensorsFile file = read_safetensors(scratch.path("t"));
    ASSERT_EQ(file.notes(), notes);
    ASSERT_EQ(file.tensors().size(), written.size());
    ASSERT_EQ(file.find("other"), nullptr);
    for (const SafeTensor& t : written) {
      const StoredTensor* stored = file.find(t.name);
      ASSERT_NE(stored, nullptr);
      ASSERT_EQ(stored->type, t.type);
      ASSERT_EQ(stored->shape, t.shape);
      const size_t first = t.data.empty() ? 0 : below(t.data.size());
      std::vector<std::byte> part(t.data.size() - first);
      file.read(*stored, static_cast<int64_t>(first), part);
      ASSERT_TRUE(std::ranges::equal(part, t.data.subspan(first)));
      part.push_back({});
      ASSERT_THROW(file.read(*stored, static_cast<int64_t>(first), part), WrongResult);
    }
  }
}

TEST(SafeTensorsFile, WhatIsWrongIsOneLine) {
  const Scratch scratch;
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto b = [](const std::string& offsets) {
    return R"("b":{"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}";
  };
  const auto expect = [&](const std::string& file, const std::string& part) {
    const std::string path = scratch.write("t", file);
    const std::string text = error_of<BadInput>([&] { read_safetensors(path); });
    EXPECT_TRUE(text.starts_with(path + ": ") && text.find('\n') == std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto wrong = [&](const std::string& header, size_t data, const std::string& part) {
    expect(file_of(header, data), part);
  };
  expect("", "found 0 bytes");
  expect("1234567", "found 7 bytes");
  expect(std::string(7, '\0') + '\x7f', "may be incomplete");
  expect(file_of("{" + a + "}", 8).substr(0, 30), "may be incomplete");
  wrong("", 0, "header");
  wrong("[]", 0, "header");
  wrong("{" + a, 8, "header");
  wrong(" {}", 0, "header");
  wrong("{" + a + "}", 7, "'a': found a file of");
  wrong("{" + a + "}", 9, "the tensors end there");
  wrong("{" + a + "," + b("[4,12]") + "}", 12, "'b': found its first byte at");
  wrong("{" + a + "," + b("[4,12]") + "}", 12, "inside the tensor before");
  wrong("{" + a + "," + b("[9,17]") + "}", 17, "behind a gap");
  wrong("{" + b("[9,17]") + "}", 17, "behind a gap");
  wrong("{" + a + "," + a + "}", 8, "found 2 entries of 1 names");
  wrong("{" + b("[8,0]") + "}", 8, "'b': data_offsets: found 8 to 0");
  wrong("{" + b("[0,4]") + "}", 4, "expected 8 bytes");
  wrong("{" + b("[0,8,8]") + "}", 8, "found 3 numbers");
  wrong("{" + b("[-8,0]") + "}", 8, "found '-8', expected a whole number");
  wrong("{" + b("[0,8.0]") + "}", 8, "found '8.0', expected a whole number");
  wrong("{" + b("[18446744073709551608,18446744073709551615]") + "}", 8, "expected a whole number");
  wrong("{" + b("[9223372036854775799,9223372036854775807]") + "}", 8, "fewer than 2^63");
  wrong("{" + b("8") + "}", 8, "found no data_offsets");
  wrong(R"({"a":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}})", 8, "'a': dtype: found 'F8'");
  wrong(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8, "expected dtype, shape");
  wrong(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"b":1}})", 8, "expected dtype, shape");
  wrong(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "2^63");
  wrong(R"({"a\n":5})", 0, "expected dtype");
  wrong(R"({"__metadata__":{"a":1}})", 0, "'a': found no text");
  wrong(R"({"__metadata__":5})", 0, "__metadata__");
  EXPECT_EQ(read_safetensors(scratch.write("t", file_of("{}", 0))).tensors().size(), 0u);
  EXPECT_EQ(read_safetensors(scratch.write("t", file_of("{" + a + "}  ", 8))).tensors().size(), 1u);
  for (const std::string& path : {scratch.path(""), scratch.path("none")})
    EXPECT_EQ(error_of<BadInput>([&] { read_safetensors(path); }),
              path + ": cannot be read, expected a safetensors file");
}

// Bytes changed, put in, taken out or cut off by chance: either one clear line, or tensors that lie inside the file.
TEST(SafeTensorsFile, FuzzedHeadersAreRefusedOrConsistent) {
  const Scratch scratch;
  const std::vector<std::byte> memory(48);
  const std::string path = scratch.path("t");
  write_safetensors(
      path,
      std::vector{SafeTensor{"w1", "F32", {2, 3}, std::span(memory).first(24)},
                  SafeTensor{"w2.m", "BF16", {4}, std::span(memory).first(8)}, SafeTensor{"none", "I64", {0, 9}, {}}},
      {{"w1", "0+2/4 0+3/3"}, {"w2.m", "x"}});
  const std::string whole = Scratch::read(path);
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  constexpr std::string_view kLikely = "{}[]\",:0123456789-.eE\\ \n\x80\xffntfu";
  int refused = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    uint64_t next = 0;
    const auto below = [&](uint64_t end) { return random_bits(seed, 1, next++) % end; };
    std::string header = whole.substr(8, length), file;
    for (uint64_t changes = 1 + below(3); changes > 0 && !header.empty(); --changes) {
      const size_t at = below(header.size());
      const char c = below(4) == 0 ? static_cast<char>(below(256)) : kLikely[below(kLikely.size())];
      switch (below(4)) {
        case 0:
          header[at] = c;
          break;
        case 1:
          header.insert(at, 1 + below(3), c);
          break;
        case 2:
          header.erase(at, 1 + below(4));
          break;
        default:
          header.insert(at, header.substr(below(header.size()), below(60)));
      }
    }
    file = file_of(header, 32);
    if (below(5) == 0) file.resize(below(file.size()));
    if (below(9) == 0 && !file.empty()) file[below(std::min<size_t>(8, file.size()))] = static_cast<char>(below(256));
    scratch.write("fuzzed", file);
    try {
      SafeTensorsFile read = read_safetensors(scratch.path("fuzzed"));
      int64_t bytes = 0;
      for (const StoredTensor& t : read.tensors()) {
        ASSERT_LE(t.first + t.bytes, static_cast<int64_t>(file.size()));
        std::vector<std::byte> data(t.bytes);
        read.read(t, 0, data);
        bytes += t.bytes;
      }
      ASSERT_LE(bytes, 32 + 60);
    } catch (const BadInput& error) {
      const std::string text = error.what();
      ASSERT_TRUE(text.starts_with(scratch.path("fuzzed") + ": ")) << text;
      ASSERT_EQ(text.find_first_of("\n\r"), std::string::npos) << text;
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 20'000);  // blanks, texts and names may change
}

}  // namespace
}  // namespace moe
