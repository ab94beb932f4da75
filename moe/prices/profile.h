#pragma once
// A cluster profile: fitted alpha-beta rows per op, group size and network. t(n) = alpha + n beta (FSMoE section 4.1).
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

// [contention] of a cluster profile: how tasks on two resources of a rank slow each other down while both run.

/// The resource of its rank that a task uses: a computation uses `compute`, a collective its group's network, and a
/// re-layout copy on any lane the device's memory (`copy`). Tasks that use none neither cause nor suffer contention.
enum class Resource : uint8_t { compute, inter, intra, copy, none };
inline constexpr int kResources = 5;
inline constexpr size_t kSlowed = kResources - 1;
std::string_view name_of(Resource resource);

struct Contention {
  // The factors, >= 1, by which the first resource's tasks take longer beside the second's.
  double intra_by_inter = 1, inter_by_intra = 1;
  double compute_by_inter = 1, compute_by_intra = 1, inter_by_compute = 1, intra_by_compute = 1;
  double copy_by_inter = 1, copy_by_intra = 1, copy_by_compute = 1;
  double inter_by_copy = 1, intra_by_copy = 1, compute_by_copy = 1;
  /// [slowed][by]: the seconds, >= 0, that a task loses each time it begins to overlap with a task of the other
  /// resource, whatever their sizes: kernels that wait for each other to be scheduled (MoNTA's section Discussions).
  EnumArray<Resource, EnumArray<Resource, double, kSlowed>, kSlowed> stall_s{};

  bool none() const { return *this == Contention{}; }
  bool operator==(const Contention&) const = default;
};

/// An ordered pair of resources and its factor. A profile names them SLOWED_by_BY and SLOWED_by_BY_stall_s.
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

/// A fit's verdict on its row, beside r^2 and the median held-out error. A row written by hand has none.
struct RowVerdict {
  std::optional<double> held_out_worst;
  Points set_aside;                 // samples that the row is not fitted to
  std::optional<std::string> weak;  // why prices from this row are doubtful
  std::string origin = {};          // origin of the row, such as "from h100-8"; empty: the profile's own source
  bool operator==(const RowVerdict&) const = default;
};

/// A row of [[comm]]: one op of that table (op.h), group size, network and algorithm.
struct CommRow {
  Op op = Op::none;
  Network network = Network::inter;
  int ranks = 0;  // size of the group, not of the cluster
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  std::string algorithm = "direct";
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range_bytes = {};
  Points points = {};  // measured curve, used instead of alpha and beta (price_curve.h)
  RowVerdict verdict = {};
  int node_limit = 0;  // of an AlltoAll that sends a row once per node: most nodes that tokens reached; 0: unknown
  /// Rows sent per copy when the row was measured: of an AlltoAll that sends a row once per node or, inside a node,
  /// once per rank, the number of places reached over k. 0: a row for each copy, or unknown.
  double sent_share = 0;
};

/// A row of [[compute]]: gemm (gemms * alpha + flops * beta), expert (with ffn, as a whole), copy or
/// host_copy (beta_s_per_byte).
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

/// A row of [[module]]: a profiled sub-module, used instead of gemm if present (FSMoE section 3.2). beta applies to the
/// FLOPs or bytes of the row's own phase (modules.h); the other one is 0.
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

/// A row of [[task]]: a computation as layers run it, alone on its rank while all ranks compute; used instead of module
/// and gemm if present. It takes s_per . terms seconds (terms.h).
struct TaskRow {
  std::string name;  // task_row_name
  Phase phase = Phase::forward;
  DType dtype = DType::float32;
  TermValues s_per{};
  TermValues least{}, most{};  // ranges of the measured terms
  std::optional<double> r_squared = {}, held_out_error = {};
  RowVerdict verdict = {};
};

/// Rates of a causal attention kernel by sequence length: a row of [[attention]], part of a GpuModel.
struct AttentionRate {
  int64_t head_dim = 0;
  Phase phase = Phase::forward;
  Points flops_per_s;  // (tokens, FLOP/s), ascending
};

/// A model of the hardware, [gpu], which prices 16-bit computations without a measured row (gpu_prices.h).
struct GpuModel {
  std::string name;
  int multiprocessors = 1;
  double tensor_flops_per_s = 0;  // peak of 16-bit matrix products
  double memory_bytes_per_s = 0;  // peak of the memory
  double memory_share = 1;        // measured share of memory_bytes_per_s
  double gemm_share = 1;          // measured share of tensor_flops_per_s
  double gemm_tile_s = 0;         // seconds per tile in addition to its products
  double grouped_share = 1;       // for experts, as gemm_share and gemm_tile_s
  double grouped_tile_s = 0;
  std::string origin = {};                    // as RowVerdict::origin
  std::vector<AttentionRate> attention = {};  // none: priced as GEMMs
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

/// Adds from `other` the rows of computations, [gpu] and the memory of a rank that `profile` lacks, and sets their
/// origin. Measurements take precedence over a model: [gpu] is not added if a GEMM or expert in 16 bits was measured.
/// Returns the names of the additions.
std::vector<std::string> take_computations(Profile& profile, const Profile& other);
/// Returns the parts whose origin is not the profile's source, "gemm bfloat16, copy and [gpu] from h100-8"; empty if
/// there are none.
std::string text_of_origins(const Profile& profile);

/// The largest cluster that a profile's file may describe.
inline constexpr int kMostNodes = 65536, kMostRanksPerNode = 1024;  // ranks stay an int
/// Returns whether the text is one line without "/", because file names are made from it.
bool is_profile_name(std::string_view text);
inline constexpr std::string_view kProfileName = "one line of text without /";
/// Returns the most ranks that a group on this network can have.
inline int most_ranks(const Profile& profile, Network network) {
  return network == Network::intra ? profile.ranks_per_node : profile.nodes * profile.ranks_per_node;
}

/// Reads a profile's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Profile read_profile(const std::string& path);
/// Writes TOML that read_profile reads back to the same values (17 digits), except that bytes of `source` that are not
/// UTF-8 become '?'.
void write_profile(const Profile& profile, std::ostream& out);

/// Reads the profile of that name (configs/clusters/NAME.toml) or path, or composes it (composed_profile.h); `nodes`
/// replaces its number of nodes. Throws BadInput listing the known names and the other values that the caller accepts,
/// `besides`.
Profile find_profile(const std::string& name_or_path, std::optional<int> nodes = {},
                     std::vector<std::string> besides = {});

// Reads the fields that all tables of prices share, in a profile or assumed: the key of a row, alpha and beta.

/// Returns the algorithms with which a collective's row may be measured: "direct", and dispatchers that differ from it.
std::vector<std::string_view> algorithms();

/// Limits of prices that any machine is within and whose sums don't overflow: seconds, and seconds per byte or FLOP.
inline constexpr Limits kSeconds{.least = 0, .most = 1e12};
inline constexpr Limits kSecondsPerUnit{.most = 1e6, .above = 0};

/// These read a row from its table. `most_ranks`: the most ranks of a group on a network. They throw BadInput as
/// TableReader does.
CommRow comm_row_from(const TableReader& table, const std::function<double(Network)>& most_ranks);
ComputeRow compute_row_from(const TableReader& table);
ModuleRow module_row_from(const TableReader& table);

/// Reads a whole profile from a parsed file, as read_profile does from a path.
Profile profile_of(const ConfigFile& file);

// Prices for plans whose times do not matter, such as plans to be verified, which need no measured cluster.

/// Returns a profile that prices every task of any schedule for this case: all networks cost the same, experts take as
/// long as a dispatch, and alpha is an eighth of that, so that cutting into a few chunks is worthwhile.
Profile nominal_profile(const LayerCase& shape);

}  // namespace moe
