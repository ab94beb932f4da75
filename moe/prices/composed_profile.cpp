#include "moe/prices/composed_profile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/text.h"

namespace moe {
namespace {

constexpr std::string_view kOneNode = "-8", kSeveralNodes = "-8-nodes";
constexpr std::array<std::string_view, 3> kNetworks{"ib", "roce", "eth"};
constexpr int kMaxGigabits = 100'000;
constexpr double kBytesPerGigabit = 1e9 / 8;

struct Words {
  std::string gpu, size, network;
};

// Returns whether the word has the form NODESxGPUS; either number may be missing.
bool is_size(std::string_view word) {
  return word.find_first_not_of("0123456789x") == std::string_view::npos && std::ranges::count(word, 'x') == 1 &&
         word.size() > 1;
}

// Splits a name at its first size (is_size); empty if no word after the first is a size.
std::optional<Words> words_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('-', begin), name.size());
    if (const std::string word = name.substr(begin, end - begin); begin > 0 && is_size(word))
      return Words{name.substr(0, begin - 1), word, name.substr(std::min(end + 1, name.size()))};
    begin = end + 1;
  }
  return std::nullopt;
}

std::optional<int> whole_from(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool valid = error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
  return valid ? std::optional(value) : std::nullopt;
}

// Returns pairs of a GPU's name and the preset that describes a node of it.
std::vector<std::pair<std::string, std::string>> gpus() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& preset : config_names("clusters"))
    for (const std::string_view ending : {kOneNode, kSeveralNodes}) {
      if (!preset.ends_with(ending)) continue;
      const std::string gpu = preset.substr(0, preset.size() - ending.size());
      const bool known = std::ranges::find(found, gpu, &std::pair<std::string, std::string>::first) != found.end();
      if (!known && gpu.find('-') == std::string::npos) found.emplace_back(gpu, preset);
    }
  return found;
}

Profile node_of(const std::string& name, const std::string& gpu) {
  std::vector<std::string_view> known;
  const auto presets = gpus();
  for (const auto& [known_gpu, preset] : presets) {
    if (known_gpu == gpu) return read_profile(find_config("clusters", preset));
    known.push_back(known_gpu);
  }
  bad_input("cluster: found {}, expected {}, as {}, of a GPU of: {}{}", quoted_text(name), kComposedForm,
            kComposedExample, fmt::join(known, ", "), suggestion(gpu, known));
}

// Returns the rate of each GPU's link in bytes per second.
double rate_of(const std::string& name, const std::string& network) {
  const size_t dash = network.find('-');
  const bool known = std::ranges::find(kNetworks, network.substr(0, dash)) != kNetworks.end();
  const auto gigabits =
      dash == std::string::npos ? std::nullopt : whole_from(network.substr(dash + 1), 1, kMaxGigabits);
  require<BadInput>(
      known && gigabits,
      "cluster: found {}, expected {}, as {}, with a network of {} and Gbit/s a GPU (1 to {}) behind the size",
      quoted_text(name), kComposedForm, kComposedExample, fmt::join(kNetworks, "|"), kMaxGigabits);
  return *gigabits * kBytesPerGigabit;
}

// Adds rows between nodes to a profile that has rows inside a node.
class LinkModel {
 public:
  LinkModel(Profile& cluster, double bytes_per_s, std::string origin)
      : cluster_(cluster), s_per_byte_(1 / bytes_per_s), origin_(std::move(origin)) {}

  void add_rows() {
    add(Op::sendrecv, 2, 0, 0, s_per_byte_);
    const int all = cluster_.nodes * cluster_.ranks_per_node;
    // If all sizes are powers of two, groups divide nodes evenly. Otherwise a node may have fewer ranks than others.
    const bool even = std::has_single_bit(static_cast<unsigned>(all));
    for (int ranks = 2; ranks <= all; ++ranks)
      for (int of_node = 1; all % ranks == 0 && of_node <= std::min(cluster_.ranks_per_node, ranks / 2); ++of_node)
        if (cluster_.ranks_per_node % of_node == 0 && (!even || ranks / of_node <= cluster_.nodes))
          add_group(ranks, of_node);
  }

 private:
  void add(Op op, int ranks, int ranks_per_node, double alpha_s, double beta) {
    CommRow& row = rows().emplace_back();
    row.op = op;
    row.network = Network::inter;
    row.ranks = ranks;
    row.ranks_per_node = ranks_per_node;
    row.alpha_s = alpha_s;
    row.beta_s_per_byte = beta;
    row.verdict.origin = origin_;
  }

  std::vector<CommRow>& rows() { return cluster_.comm; }

  // Adds the rows of groups with `ranks_per_node` ranks on each node. In an AlltoAll, each GPU sends the share of the
  // other nodes over its own link. An AllReduce is a ReduceScatter inside the node, a ring over the nodes for each
  // rank's part of the result, and an AllGather inside the node.
  void add_group(int ranks, int ranks_per_node) {
    const double others = 1.0 * (ranks - ranks_per_node) / ranks * s_per_byte_;
    add(Op::alltoall, ranks, ranks_per_node, 0, others);
    double alpha_s = 0, beta = 2 * others / ranks_per_node;
    if (ranks_per_node > 1)
      for (const Op op : {Op::reducescatter, Op::allgather}) {
        const CommRow* inside = intra_row(op, ranks_per_node);
        if (inside == nullptr) return;
        alpha_s += inside->alpha_s;
        beta += inside->beta_s_per_byte;
      }
    add(Op::allreduce, ranks, ranks_per_node, alpha_s, beta);
  }

  const CommRow* intra_row(Op op, int ranks) const {
    for (const CommRow& row : cluster_.comm)
      if (row.op == op && row.network == Network::intra && row.ranks == ranks) return &row;
    return nullptr;
  }

  Profile& cluster_;
  double s_per_byte_;
  std::string origin_;
};

}  // namespace

std::optional<Profile> composed_profile(const std::string& name, std::optional<int> asked_nodes) {
  const std::optional<Words> words = words_of(name);
  if (!words) return std::nullopt;
  Profile cluster = node_of(name, words->gpu);
  const size_t x = words->size.find('x');
  const auto named_nodes = whole_from(words->size.substr(0, x), 1, kMaxNodes);
  const auto nodes = named_nodes && asked_nodes ? asked_nodes : named_nodes;
  const auto ranks = whole_from(words->size.substr(x + 1), 1, cluster.ranks_per_node);
  require<BadInput>(
      nodes && ranks && cluster.ranks_per_node % *ranks == 0,
      "cluster: found {}, expected {}, as {}, of 1 to {} nodes and {} GPUs a node or a half, a fourth, ...",
      quoted_text(name), kComposedForm, kComposedExample, kMaxNodes, cluster.ranks_per_node);
  cluster.name = name;
  if (*nodes != *named_nodes) cluster.name = fmt::format("{}-{}x{}-{}", words->gpu, *nodes, *ranks, words->network);
  cluster.nodes = *nodes;
  cluster.ranks_per_node = *ranks;
  std::erase_if(cluster.comm, [&](const CommRow& row) { return row.network == Network::inter || row.ranks > *ranks; });
  if (*nodes == 1 && words->network.empty()) return cluster;
  const double rate = rate_of(name, words->network);
  const std::string origin = fmt::format("modelled at the full {:g} GB/s a GPU ({})", rate / 1e9, words->network);
  cluster.source = fmt::format("Between nodes {}. Inside a node: {}", origin, cluster.source);
  if (*nodes > 1) LinkModel(cluster, rate, origin).add_rows();
  return cluster;
}

}  // namespace moe
