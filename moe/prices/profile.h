#pragma once
// Cluster profiles: rows with a fitted alpha and beta per op, group size and network, t(n) = alpha + n beta (FSMoE
// section 4.1).
#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/config.h"
#include "moe/base/enum_array.h"
#include "moe/base/units.h"
#include "moe/prices/terms.h"

namespace moe {

// [contention] of a cluster profile: factors by which tasks on two resources of a rank slow each other.

/// The resource of its rank that a task uses: a computation uses `compute`, a collective its group's network, a copy
/// the device's memory (`copy`) on whatever lane it runs. Tasks with `none` neither cause nor suffer contention.
enum class Resource : uint8_t { compute, inter, intra, copy, none };
inline constexpr int kResources = 5;
inline constexpr size_t kContendedResources = kResources - 1;
std::string_view name_of(Resource resource);

struct Contention {
  // Factors >= 1. x_by_y: how much longer a task on resource x takes while a task on resource y runs.
  double intra_by_inter = 1, inter_by_intra = 1;
  double compute_by_inter = 1, compute_by_intra = 1, inter_by_compute = 1, intra_by_compute = 1;
  double copy_by_inter = 1, copy_by_intra = 1, copy_by_compute = 1;
  double inter_by_copy = 1, intra_by_copy = 1, compute_by_copy = 1;
  /// stall_s[slowed][by]: seconds >= 0 that a task on `slowed` loses each time it begins to overlap with a task on
  /// `by`, independent of their sizes, because kernels wait for each other to be scheduled (MoNTA's section
  /// Discussions).
  EnumArray<Resource, EnumArray<Resource, double, kContendedResources>, kContendedResources> stall_s{};

  bool none() const { return *this == Contention{}; }
  bool operator==(const Contention&) const = default;
};

/// An ordered pair of resources with its factor. The keys in a profile are SLOWED_by_BY and SLOWED_by_BY_stall_s.
struct ContentionPair {
  Resource slowed, by;
  double Contention::*factor;
  std::string key() const;
  std::string stall_key() const { return key() + "_stall_s"; }
  template <class AnyContention>
  auto& stall_s(AnyContention& contention) const {
    return contention.stall_s[slowed][by];
  }
};
/// Returns all pairs; every reader and writer of contention iterates over them.
std::span<const ContentionPair> contention_pairs();

using Range = std::array<double, 2>;
using Points = std::vector<std::array<double, 2>>;  // (size, seconds), ascending

/// The quality of a row's fit, in addition to r^2 and the median held-out error. Empty for a row written by hand.
struct RowVerdict {
  std::optional<double> held_out_worst;
  Points set_aside;                 // samples that the fit ignores as outliers
  std::optional<std::string> weak;  // the reason why prices from this row are doubtful; empty if they are not
  std::string origin = {};          // origin of the row, such as "from h100-8"; empty: the profile's own source
  bool operator==(const RowVerdict&) const = default;
};

/// A row of [[comm]]: one op of that table (op.h), group size, network and algorithm.
struct CommRow {
  Op op = Op::none;
  Network network = Network::inter;
  int ranks = 0;  // size of the group, not of the cluster
  /// For a group that spans nodes: number of its ranks on each node; 0: not stated, the row holds for any.
  int ranks_per_node = 0;
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  std::string algorithm = "direct";
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range_bytes = {};
  Points points = {};  // measured curve, used instead of alpha and beta (price_curve.h)
  RowVerdict verdict = {};
  /// For an AlltoAll that sends a row once per node: largest number of nodes that a token reached; 0: unknown.
  int node_limit = 0;
  /// For an AlltoAll that sends a row once per node or, inside a node, once per rank: the measured number of nodes or
  /// ranks reached per token, divided by k. 0: one row is sent for each of the k copies, or unknown.
  double sent_share = 0;
};

/// A row of [[compute]]: gemm (gemms * alpha + flops * beta), a whole expert (with its ffn), copy or host_copy (both by
/// beta_s_per_byte).
struct ComputeRow {
  Op op = Op::none;
  std::optional<Ffn> ffn = {};
  DType dtype = DType::float32;
  double alpha_s = 0;
  double beta_s_per_flop = 0;
  double beta_s_per_byte = 0;
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range_flops = {};
  RowVerdict verdict = {};
};

/// A row of [[module]]: a measured module, which is used instead of gemm if present (FSMoE section 3.2). One beta
/// applies to the FLOPs or bytes of the row's phase (modules.h); the other beta is 0.
struct ModuleRow {
  std::string name;  // modules.h
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  double alpha_s = 0;
  double beta_s_per_flop = 0;
  double beta_s_per_byte = 0;
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range = {};  // range of its FLOPs or bytes
  RowVerdict verdict = {};
  double beta() const { return beta_s_per_flop + beta_s_per_byte; }
};

/// A row of [[task]]: a computation as layers run it, alone on its rank while all ranks compute. It is used instead of
/// module and gemm if present, and takes seconds_per_term . terms seconds (terms.h).
struct TaskRow {
  std::string name;  // task_row_name
  Phase phase = Phase::forward;
  DType dtype = DType::float32;
  TermValues seconds_per_term{};
  TermValues min{}, max{};  // ranges of the measured terms
  std::optional<double> r_squared = {}, held_out_error = {};
  RowVerdict verdict = {};
};

/// A row of [[attention]]: rates of a causal attention kernel by sequence length.
struct AttentionRate {
  int64_t head_dim = 0;
  Phase phase = Phase::forward;
  Points flops_per_s;  // (tokens, FLOP/s), ascending
};

/// A model of the hardware, [gpu], which prices 16-bit computations that have no measured row (gpu_prices.h).
struct GpuModel {
  std::string name;
  int multiprocessors = 1;
  double tensor_flops_per_s = 0;  // peak of 16-bit matrix products
  double memory_bytes_per_s = 0;  // peak of the memory
  double memory_share = 1;        // measured share of memory_bytes_per_s
  double gemm_share = 1;          // measured share of tensor_flops_per_s
  double gemm_tile_s = 0;         // seconds per tile in addition to its FLOPs
  double grouped_share = 1;       // grouped_*: as gemm_share and gemm_tile_s, for experts
  double grouped_tile_s = 0;
  std::string origin = {};                    // as RowVerdict::origin
  std::vector<AttentionRate> attention = {};  // empty: attention is priced as GEMMs
};

/// A row of [[unusable]]: a row that was measured but could not be fitted. Tasks that need it have no price.
struct UnusableRow {
  std::string row;  // row_name of the row
  std::string reason;
  bool operator==(const UnusableRow&) const = default;
};

/// These return "alltoall inter 8", "alltoall inter 8 2dh", "gemm float32", "expert gpt float32", "copy", "attention
/// forward 256", "task attention forward float32".
std::string row_name(const CommRow& row);
std::string row_name(const ComputeRow& row);
std::string row_name(const ModuleRow& row);
std::string row_name(const TaskRow& row);

struct Profile {
  std::string name;
  std::string source;
  std::string file;  // the file that it was read from, for messages
  int nodes = 1, ranks_per_node = 1;
  std::optional<double> memory_bytes;  // memory of one rank; empty: unknown
  std::vector<CommRow> comm;
  std::vector<ComputeRow> compute;
  std::vector<ModuleRow> modules;
  std::vector<TaskRow> tasks;
  std::vector<UnusableRow> unusable;
  std::optional<GpuModel> gpu = {};
  double task_overhead_s = 0;
  Contention contention;

  /// Returns the model of the hardware that prices layers of this type; null if there is none.
  const GpuModel* gpu_of(DType dtype) const { return gpu && bytes_of(dtype) == 2 ? &*gpu : nullptr; }
};

/// Adds those rows of computations, [gpu] and the memory of a rank from `other` that `profile` does not have, sets
/// their origin and returns their names. Measurements take precedence over a model: [gpu] is not added if `profile` has
/// a measured 16-bit GEMM or expert.
std::vector<std::string> take_compute_prices(Profile& profile, const Profile& other);
/// Returns a text on the parts of a profile that have another origin than its source, such as "gemm bfloat16, copy and
/// [gpu] from h100-8"; empty if there are none.
std::string text_of_origins(const Profile& profile);

/// Limits for the cluster of a profile.
inline constexpr int kMaxNodes = 65536, kMaxRanksPerNode = 1024;  // their product fits into an int
/// Returns whether the text is one line without "/", because file names are made from it.
bool is_profile_name(std::string_view text);
inline constexpr std::string_view kProfileName = "one line of text without /";
/// Returns the largest number of ranks that a group on this network can have.
inline int max_ranks(const Profile& profile, Network network) {
  return network == Network::intra ? profile.ranks_per_node : profile.nodes * profile.ranks_per_node;
}

/// Reads a profile's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Profile read_profile(const std::string& path);
/// Writes a profile as TOML. read_profile reads back the same values, except that bytes of `source` that are not UTF-8
/// become '?'.
void write_profile(const Profile& profile, std::ostream& out);

/// Reads the profile of that name (configs/clusters/NAME.toml) or path, or composes it (composed_profile.h). `nodes`
/// replaces its number of nodes. Throws BadInput listing the known names and `besides`, other values that the caller
/// accepts.
Profile find_profile(const std::string& name_or_path, std::optional<int> nodes = {},
                     std::vector<std::string> besides = {});

// Readers of single rows, which profiles and assumed prices share.

/// Returns the algorithms that a collective's row may have: "direct", and the names of the other dispatchers.
std::vector<std::string_view> algorithms();

/// Limits of prices, which no machine reaches and whose sums don't overflow: seconds, and seconds per byte or FLOP.
inline constexpr Limits kSeconds{.min = 0, .max = 1e12};
inline constexpr Limits kSecondsPerUnit{.max = 1e6, .above = 0};

/// These read a row from its table. `max_ranks`: returns the largest number of ranks of a group on a network. They
/// throw BadInput as TableReader does.
CommRow comm_row_from(const TableReader& table, const std::function<double(Network)>& max_ranks);
ComputeRow compute_row_from(const TableReader& table);
ModuleRow module_row_from(const TableReader& table);

/// Returns the profile in a parsed file; as read_profile.
Profile profile_of(const ConfigFile& file);

// Prices for plans whose times do not matter, such as plans that are only verified.

/// Returns a profile with a price for every task of any schedule for this case. All networks cost the same, experts
/// take as long as a dispatch, and alpha is an eighth of that time, so that a few chunks are worthwhile.
Profile nominal_profile(const LayerCase& shape);

}  // namespace moe
