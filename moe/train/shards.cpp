#include "moe/train/shards.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <sstream>
#include <string_view>

#include "moe/base/check.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

/// Removes a whole number and the character `end` after it from the front of the text; if `end` is 0, the text must end
/// after the number.
bool take(std::string_view& text, int64_t& number, char end) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  if (error != std::errc() || number < 0) return false;
  if (end == 0) return text.empty();
  if (!text.starts_with(end)) return false;
  text.remove_prefix(1);
  return true;
}

/// Returns the index in a box of an element of the whole.
int64_t index_in(const ShardAxes& box, const std::array<int64_t, 3>& at) {
  return ((at[0] - box[0].first) * box[1].count + at[1] - box[1].first) * box[2].count + at[2] - box[2].first;
}

ShardAxes overlap_of(const ShardAxes& a, const ShardAxes& b) {
  ShardAxes both;
  for (size_t i = 0; i < both.size(); ++i) {
    const int64_t first = std::max(a[i].first, b[i].first);
    const int64_t last = std::min(a[i].first + a[i].count, b[i].first + b[i].count);
    both[i] = {first, std::max<int64_t>(last - first, 0), a[i].total};
  }
  return both;
}

}  // namespace

std::string text_of(const ShardAxes& axes) {
  const auto axis = [](const ShardRange& r) { return fmt::format("{}+{}/{}", r.first, r.count, r.total); };
  return fmt::format("{} {} {}", axis(axes[0]), axis(axes[1]), axis(axes[2]));
}

std::optional<ShardAxes> axes_from(const std::string& text) {
  ShardAxes axes;
  std::string_view rest = text;
  for (size_t i = 0; i < axes.size(); ++i) {
    ShardRange& r = axes[i];
    const char end = i + 1 < axes.size() ? ' ' : '\0';
    if (!take(rest, r.first, '+') || !take(rest, r.count, '/') || !take(rest, r.total, end)) return std::nullopt;
    if (r.count > r.total || r.first > r.total - r.count) return std::nullopt;
  }
  return axes;
}

void check_shard(const ShardedTensor& t, DeviceKind device) {
  require<BadInput>(axes_from(text_of(t.axes)).has_value(), "{}: found axes {}, expected parts within the whole",
                    t.name, text_of(t.axes));
  const int64_t elements = t.axes[0].count * t.axes[1].count * t.axes[2].count;
  require<BadInput>(t.data.device() == device && t.data.elements() == elements,
                    "{}: found {} elements on {}, expected {} on {}", t.name, t.data.elements(),
                    name_of(t.data.device()), elements, name_of(device));
}

int64_t elements_in(const ShardAxes& axes) { return axes[0].count * axes[1].count * axes[2].count; }

std::vector<ShardRun> common_runs(const ShardAxes& part, const ShardAxes& wanted) {
  ShardAxes both = overlap_of(part, wanted);
  ShardRun run{.count = elements_in(both)};
  if (run.count == 0) return {};
  size_t outer = 0;  // axes before this one are walked along, one element at a time
  for (size_t i = both.size(); i-- > 1 && outer == 0;)
    if (both[i].count != part[i].count || both[i].count != wanted[i].count) outer = i;
  std::vector<ShardRun> runs;
  for (size_t i = 0; i < outer; ++i) run.count /= both[i].count;
  const int64_t rows = outer > 0 ? both[0].count : 1, columns = outer > 1 ? both[1].count : 1;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const std::array<int64_t, 3> at{both[0].first + i, both[1].first + j, both[2].first};
      run.from = index_in(part, at);
      run.to = index_in(wanted, at);
      runs.push_back(run);
    }
  return runs;
}

namespace {

// Idea: every rank learns which parts all ranks have and want, and computes the same list of runs to move from it. One
// AlltoAll then moves them; between two ranks, runs are in the order of the receiver's tensors.

/// The description of one of a rank's tensors that is sent to all ranks.
struct TensorDescription {
  std::string name;
  ShardAxes axes;
  int64_t width = 0;  // bytes of an element
};
using RankTensors = std::vector<TensorDescription>;

std::string text_of(std::span<const ShardedTensor> tensors) {
  std::string text;
  for (const ShardedTensor& t : tensors)
    text += fmt::format("{}\n{}\n{}\n", t.name, text_of(t.axes), bytes_of(t.data.dtype()));
  return text;
}

RankTensors tensors_in(const std::string& text) {
  RankTensors tensors;
  std::istringstream lines(text);
  std::string axes, width;
  for (TensorDescription t; std::getline(lines, t.name) && std::getline(lines, axes) && std::getline(lines, width);) {
    t.axes = axes_from(axes).value();
    t.width = std::stoll(width);
    tensors.push_back(t);
  }
  return tensors;
}

/// Blocking copies and collectives on one stream, of a device.
struct Transfers {
  Communicator& world_comm;
  Device& device;
  Stream& stream;

  CommCall call() const { return {stream, {}, "moving weights to other ranks"}; }

  std::vector<std::string> gather(const std::string& text) const {
    std::vector<int64_t> sizes(static_cast<size_t>(world_comm.size()));
    const auto own = static_cast<int64_t>(text.size());
    exchange(&own, sizeof own, sizes.data(), std::ssize(sizes) * static_cast<int64_t>(sizeof own),
             [&](const void* send, void* receive) { world_comm.allgather(send, receive, sizeof own, call()); });
    std::string all(static_cast<size_t>(std::reduce(sizes.begin(), sizes.end())), ' ');
    exchange(text.data(), own, all.data(), std::ssize(all),
             [&](const void* send, void* receive) { world_comm.allgatherv(send, receive, sizes, call()); });
    std::vector<std::string> texts;
    for (size_t at = 0; const int64_t size : sizes) {
      texts.push_back(all.substr(at, static_cast<size_t>(size)));
      at += static_cast<size_t>(size);
    }
    return texts;
  }
  /// Runs a collective from and to memory of the host.
  void exchange(const void* send, int64_t send_bytes, void* receive, int64_t receive_bytes,
                const auto& collective) const {
    const Memory out = device.make_memory(send_bytes), in = device.make_memory(receive_bytes);
    if (send_bytes > 0) stream.copy({out.data(), send, send_bytes});
    collective(out.data(), in.data());
    if (receive_bytes > 0) stream.copy({receive, in.data(), receive_bytes});
    stream.synchronize();
  }
};

/// A run of elements that one rank, the giver, sends to another, the taker.
struct ShardMove {
  size_t from = 0, to = 0;  // index of the tensor on the giver, and on the taker
  ShardRun run;
  int64_t width = 0;
};

/// Returns, by giver, the runs that `taker` gets.
std::vector<std::vector<ShardMove>> moves_for(size_t taker, const RankTensors& wanted,
                                              const std::vector<RankTensors>& held,
                                              const std::vector<std::map<std::string, size_t>>& places) {
  std::vector<std::vector<ShardMove>> moves(held.size());
  for (size_t to = 0; to < wanted.size(); ++to) {
    std::vector<bool> filled(static_cast<size_t>(elements_in(wanted[to].axes)));
    for (size_t i = 0; i < held.size(); ++i) {
      const size_t giver = (taker + i) % held.size();
      const auto found = places[giver].find(wanted[to].name);
      if (found == places[giver].end()) continue;
      for (const ShardRun& run : common_runs(held[giver][found->second].axes, wanted[to].axes)) {
        const auto first = filled.begin() + run.to, last = first + run.count;
        if (std::find(first, last, false) == last) continue;  // a copy of another rank's
        moves[giver].push_back({found->second, to, run, wanted[to].width});
        std::fill(first, last, true);
      }
    }
    const auto missing = std::ranges::find(filled, false) - filled.begin();
    require<WrongResult>(missing == std::ssize(filled), "{}: found no rank with element {} of part {}, expected one",
                         wanted[to].name, missing, text_of(wanted[to].axes));
  }
  return moves;
}

int64_t moved_bytes(const std::vector<ShardMove>& moves) {
  int64_t bytes = 0;
  for (const ShardMove& move : moves) bytes += move.run.count * move.width;
  return bytes;
}

std::deque<HostCopy> host_copies(std::span<const ShardedTensor> tensors, MemorySpace& memory) {
  std::deque<HostCopy> copies;
  for (const ShardedTensor& t : tensors) {
    check_shard(t, memory.kind());
    copies.emplace_back(t.data, memory, Widen::no);
  }
  return copies;
}

}  // namespace

int64_t move_shards(std::span<const ShardedTensor> from, std::span<const ShardedTensor> to, Communicator& world_comm,
                    Device& device, MemorySpace& memory, Stream& stream) {
  const Transfers transfers{world_comm, device, stream};
  const auto ranks = static_cast<size_t>(world_comm.size()), own = static_cast<size_t>(world_comm.rank());
  std::vector<RankTensors> held, wanted;
  for (const std::string& text : transfers.gather(text_of(from))) held.push_back(tensors_in(text));
  for (const std::string& text : transfers.gather(text_of(to))) wanted.push_back(tensors_in(text));
  std::vector<std::map<std::string, size_t>> places(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < held[rank].size(); ++i) places[rank][held[rank][i].name] = i;

  const std::deque<HostCopy> given = host_copies(from, memory), taken = host_copies(to, memory);
  const auto copy = [](const void* source, void* target, int64_t bytes) {
    if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
  };
  std::vector<std::byte> out;
  std::vector<int64_t> out_bytes(ranks), in_bytes(ranks);
  std::vector<std::vector<ShardMove>> takes;  // ours, by giver
  for (size_t taker = 0; taker < ranks; ++taker) {
    std::vector<std::vector<ShardMove>> moves = moves_for(taker, wanted[taker], held, places);
    if (taker == own) {
      takes = std::move(moves);
      continue;
    }
    out_bytes[taker] = moved_bytes(moves[own]);
    for (const ShardMove& move : moves[own]) {
      const size_t at = out.size();
      out.resize(at + static_cast<size_t>(move.run.count * move.width));
      copy(given[move.from].view().at(move.run.from), out.data() + at, move.run.count * move.width);
    }
  }
  for (const ShardMove& move : takes[own])
    copy(given[move.from].view().at(move.run.from), taken[move.to].view().at(move.run.to), move.run.count * move.width);
  takes[own].clear();
  for (size_t giver = 0; giver < ranks; ++giver) in_bytes[giver] = moved_bytes(takes[giver]);
  std::vector<std::byte> in(static_cast<size_t>(std::reduce(in_bytes.begin(), in_bytes.end())));
  transfers.exchange(out.data(), std::ssize(out), in.data(), std::ssize(in), [&](const void* send, void* receive) {
    world_comm.alltoallv(send, out_bytes, receive, in_bytes, transfers.call());
  });
  const std::byte* next = in.data();
  for (const std::vector<ShardMove>& moves : takes)
    for (const ShardMove& move : moves) {
      copy(next, taken[move.to].view().at(move.run.to), move.run.count * move.width);
      next += move.run.count * move.width;
    }
  for (const HostCopy& tensor : taken) tensor.send();
  return std::ssize(in);
}

}  // namespace moe
