#include "moe/model/gpt2_file.h"

#include <algorithm>
#include <deque>
#include <map>

#include "moe/base/check.h"
#include "moe/formats/safetensors.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

// A weight `ours` of (rows, columns), and its place in the file: columns [first, first + columns) of tensor `theirs`,
// which has `width` columns.
struct Piece {
  std::string ours;
  int64_t rows, columns;
  std::string theirs;
  int64_t first, width;
};

std::vector<Piece> pieces_of(const Gpt2Shape& shape) {
  const int64_t m = shape.layer.model_dim, h = shape.layer.hidden;
  std::vector<Piece> all;
  const auto add = [&](const std::string& ours, int64_t rows, const std::string& theirs, int64_t width) {
    all.push_back({ours, rows, width, theirs, 0, width});
  };
  add("embedding", shape.vocabulary, "wte.weight", m);
  add("places", shape.layer.seq, "wpe.weight", m);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string ours = fmt::format("layer-{}.", layer), theirs = fmt::format("h.{}.", layer);
    const auto norm = [&](const std::string& name, const std::string& of) {
      add(ours + name, 1, theirs + of + ".weight", m);
      add(ours + name + "_bias", 1, theirs + of + ".bias", m);
    };
    const auto product = [&](char name, int64_t rows, const std::string& of, int64_t columns) {
      add(ours + 'w' + name, rows, theirs + of + ".weight", columns);
      add(ours + 'b' + name, 1, theirs + of + ".bias", columns);
    };
    norm("norm1", "ln_1");
    for (const auto& [name, first] : {std::pair{'q', int64_t{0}}, {'k', m}, {'v', 2 * m}}) {
      all.push_back({ours + 'w' + name, m, m, theirs + "attn.c_attn.weight", first, 3 * m});
      all.push_back({ours + 'b' + name, 1, m, theirs + "attn.c_attn.bias", first, 3 * m});
    }
    product('o', m, "attn.c_proj", m);
    norm("norm2", "ln_2");
    product('1', m, "mlp.c_fc", h);
    product('2', h, "mlp.c_proj", m);
  }
  add("norm3", 1, "ln_f.weight", m);
  add("norm3_bias", 1, "ln_f.bias", m);
  return all;
}

bool is_regression_gate_launch(const std::string& name) { return name.find(".gate") != std::string::npos; }

const StoredTensor& stored(const SafeTensorsFile& file, const std::string& path, const Piece& piece) {
  const StoredTensor* found = file.find(piece.theirs);
  if (found == nullptr) found = file.find("transformer." + piece.theirs);
  require<BadInput>(found != nullptr, "{}: found no tensor {}, expected GPT-2's weights", path, piece.theirs);
  require<BadInput>(found->type == "F32" || found->type == "F64", "{}: {}: found type {}, expected F32 or F64", path,
                    piece.theirs, found->type);
  const bool vector = piece.theirs.ends_with(".bias") || piece.theirs.find("ln_") != std::string::npos,
             longer = piece.ours == "places";  // whose later rows are not read
  const std::vector<int64_t> expected = vector ? std::vector{piece.width} : std::vector{piece.rows, piece.width};
  std::vector<int64_t> cut = found->shape;
  if (longer && cut.size() == 2) cut.front() = std::min(cut.front(), piece.rows);
  require<BadInput>(cut == expected, "{}: {}: found shape ({}), expected ({})", path, piece.theirs,
                    fmt::join(found->shape, ", "), fmt::join(expected, ", "));
  return *found;
}

// Reads row by row, only the rank's columns of each row.
template <class From>
void read_part(SafeTensorsFile& file, const StoredTensor& tensor, const Piece& piece, const Parameter& weight) {
  const auto& [one, rows, columns] = weight.axes;
  std::vector<From> row(columns.count);
  with_element(weight.value.dtype(), [&](auto zero) {
    auto* to = weight.value.as<decltype(zero)>();
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
      const int64_t at = i * piece.width + piece.first + columns.first;
      file.read(tensor, at * int64_t{sizeof(From)}, std::as_writable_bytes(std::span(row)));
      to = std::transform(row.begin(), row.end(), to, [](From v) { return static_cast<decltype(zero)>(v); });
    }
  });
}

}  // namespace

void require_gpt2(const Gpt2Shape& shape, const std::string& where) {
  const LayerShape& l = shape.layer;
  const auto expect = [&](bool is, std::string_view found, std::string_view expected) {
    require<BadInput>(is, "{}: found a model with {}, GPT-2 has {}", where, found, expected);
  };
  expect(l.experts == 1 && l.shared_hidden == 0, fmt::format("{} experts", l.experts + (l.shared_hidden > 0 ? 1 : 0)),
         "one feed-forward (experts = 1)");
  expect(l.gate == "gshard" || l.gate == "switch", "gate " + l.gate, "none: gshard or switch weigh one expert by 1");
  expect(!l.capacity_factor, "a capacity", "no tokens to drop (capacity_factor = \"none\")");
  expect(l.ffn == Ffn::gpt_tanh, fmt::format("ffn {}", name_of(l.ffn)), "gpt-tanh");
  expect(l.norm == Norm::layernorm, fmt::format("norm {}", name_of(l.norm)), "layernorm");
  expect(l.bias, "no biases", "them (bias = true)");
  expect(l.causal && l.residual, l.causal ? "no residuals" : "attention that is not causal", "both");
  expect(l.rope_theta == 0, "rotary positions", "learned ones");
  expect(l.window == 0, "a sliding window", "attention to all tokens before");
  expect(!is_latent(l), "latent attention", "keys and values of the tokens themselves");
  expect(l.head_dim == 0, fmt::format("heads {} wide", l.head_dim), "model_dim / heads");
  expect(l.kv_heads == l.heads, fmt::format("{} key-value heads", l.kv_heads), "as many as heads");
  expect(shape.tied, "an output projection of its own", "its embedding there (tied_embedding = true)");
}

void read_gpt2(const std::string& path, const Gpt2Shape& shape, std::span<const Parameter> weights,
               MemorySpace& memory) {
  SafeTensorsFile file = read_safetensors(path);
  std::map<std::string, Piece> pieces;
  for (Piece& piece : pieces_of(shape)) pieces.emplace(piece.ours, std::move(piece));
  for (const auto& [name, piece] : pieces) stored(file, path, piece);  // checks all of them before a weight is changed
  for (const char* prefix : {"", "transformer."})
    require<BadInput>(file.find(fmt::format("{}h.{}.ln_1.weight", prefix, shape.layers)) == nullptr,
                      "{}: found a layer {}, expected those of {} layers", path, shape.layers, shape.layers);
  for (const Parameter& weight : weights) {
    if (is_regression_gate_launch(weight.name)) continue;
    const auto found = pieces.find(weight.name);
    require<WrongResult>(found != pieces.end(), "weight {}: GPT-2 has no weight of this name", weight.name);
    const StoredTensor& tensor = stored(file, path, found->second);
    const HostCopy here(weight.value, memory);
    Parameter of_host = weight;
    of_host.value = here.view();
    if (tensor.type == "F32")
      read_part<float>(file, tensor, found->second, of_host);
    else
      read_part<double>(file, tensor, found->second, of_host);
    here.send();
  }
}

void write_gpt2(const std::string& path, const Gpt2Shape& shape, const Checkpoint& checkpoint) {
  const std::vector<Piece> pieces = pieces_of(shape);
  std::deque<Tensor> ours, theirs;
  std::vector<ShardedTensor> wanted;
  for (const Piece& p : pieces) {
    ours.emplace_back(std::initializer_list<int64_t>{1, p.rows, p.columns}, shape.layer.dtype);
    wanted.push_back({p.ours, {ShardRange{0, 1, 1}, {0, p.rows, p.rows}, {0, p.columns, p.columns}}, ours.back()});
  }
  read_checkpoint(checkpoint, wanted);
  std::vector<SafeTensor> all;
  const int64_t width = bytes_of(shape.layer.dtype);
  std::map<std::string, size_t> made;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    const auto [at, is_new] = made.emplace(p.theirs, all.size());
    if (is_new) {
      theirs.emplace_back(std::initializer_list<int64_t>{p.rows, p.width}, shape.layer.dtype);
      const TensorView whole = theirs.back();
      all.push_back({p.theirs,
                     safetensor_type(shape.layer.dtype),
                     p.rows == 1 ? std::vector{p.width} : std::vector{p.rows, p.width},
                     {whole.at(0), static_cast<size_t>(whole.bytes())}});
    }
    const TensorView from = ours[i], to = theirs[at->second];
    for (int64_t row = 0; row < p.rows; ++row)
      std::copy_n(from.at(row * p.columns), p.columns * width, to.at(row * p.width + p.first));
  }
  write_safetensors(path, all);
}

}  // namespace moe
