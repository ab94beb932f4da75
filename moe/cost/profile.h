#pragma once
// A cluster profile: fitted alpha-beta rows per op, group size and network. t(n) = alpha + n beta (FSMoE section 4.1).
#include <array>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/cost/contention.h"
#include "moe/cost/terms.h"

namespace moe {

using Range = std::array<double, 2>;
using Points = std::vector<std::array<double, 2>>;  // (size, seconds), ascending

/// Holds what a fit found of its row, beside r^2 and the median held-out error. A row written by hand has none of it.
struct RowVerdict {
  std::optional<double> held_out_worst;
  Points set_aside;  // samples that the row is not fitted to
  std::string weak;  // why what the row prices is to be doubted; empty: nothing
  bool operator==(const RowVerdict&) const = default;
};

/// Holds a row of [[comm]]: one op of that table (op.h), group size, network and algorithm.
struct CommRow {
  Op op = Op::none;
  Network network = Network::inter;
  int ranks = 0;  // of the group, not of the cluster
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  std::string algorithm = "direct";
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range_bytes = {};
  Points points = {};  // measured curve, used instead of alpha and beta (price_curve.h)
  RowVerdict verdict = {};
  int node_limit = 0;  // of an AlltoAll that sends a row once a node: tokens reached so many at most; 0: not known
};

/// Holds a row of [[compute]]: gemm (gemms * alpha + flops * beta), expert (with ffn, as a whole) or copy
/// (beta_s_per_byte).
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

/// Holds a row of [[module]]: a profiled sub-module, used instead of gemm where present (FSMoE section 3.2). beta
/// applies to the FLOPs or bytes of its own phase (modules.h); the other one is 0.
struct ModuleRow {
  std::string name;  // modules.h
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  double alpha_s = 0;
  double beta_s_per_flop = 0;
  double beta_s_per_byte = 0;
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range = {};  // of its FLOPs or bytes
  RowVerdict verdict = {};
  double beta() const { return beta_s_per_flop + beta_s_per_byte; }
};

/// Holds a row of [[task]]: a computation as layers run it, alone on its rank while all ranks compute; used instead of
/// module and gemm where present. It takes s_per . terms (terms.h).
struct TaskRow {
  std::string name;  // task_row_name
  Phase phase = Phase::forward;
  DType dtype = DType::float32;
  TermValues s_per{};
  TermValues least{}, most{};  // of the terms that were measured
  std::optional<double> r_squared = {}, held_out_error = {};
  RowVerdict verdict = {};
};

/// Holds a row of [[unusable]]: a row that was measured and could not be fitted. What needs it has no price.
struct UnusableRow {
  std::string row;  // its row_name
  std::string reason;
  bool operator==(const UnusableRow&) const = default;
};

/// These return "alltoall inter 8", "alltoall inter 8 2dh", "gemm float32", "expert gpt float32", "attention forward
/// 256", "task attention forward float32".
std::string row_name(const CommRow& row);
std::string row_name(const ComputeRow& row);
std::string row_name(const ModuleRow& row);
std::string row_name(const TaskRow& row);

struct Profile {
  std::string name;
  std::string source;
  std::string file;  // where it was read from, for messages
  int nodes = 1, ranks_per_node = 1;
  std::optional<double> memory_bytes;  // of one rank; empty: unknown
  std::vector<CommRow> comm;
  std::vector<ComputeRow> compute;
  std::vector<ModuleRow> modules;
  std::vector<TaskRow> tasks;
  std::vector<UnusableRow> unusable;
  double task_overhead_s = 0;
  Contention contention;
};

/// The largest cluster that a profile's file may describe.
inline constexpr int kMostNodes = 65536, kMostRanksPerNode = 1024;  // ranks stay an int
/// Says whether the text is one line without "/", since files are named by it.
bool is_profile_name(std::string_view text);
inline constexpr std::string_view kProfileName = "one line of text without /";
/// Returns the most ranks that a group on this network can have.
inline int most_ranks(const Profile& profile, Network network) {
  return network == Network::intra ? profile.ranks_per_node : profile.nodes * profile.ranks_per_node;
}

/// Reads a profile's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Profile read_profile(const std::string& path);
/// Writes TOML that read_profile reads back to the same values (17 digits), but for bytes of `source` that are no
/// UTF-8: '?'.
void write_profile(const Profile& profile, std::ostream& out);

/// Reads the profile of that name (configs/clusters/NAME.toml), or of that path. Throws BadInput listing the known
/// names.
Profile find_profile(const std::string& name_or_path);

}  // namespace moe
