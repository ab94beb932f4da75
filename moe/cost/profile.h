#pragma once
// A cluster profile: fitted alpha-beta rows per op, group size and network. t(n) = alpha + n beta (FSMoE section 4.1).
#include <array>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "moe/cost/contention.h"
#include "moe/plan/plan.h"

namespace moe {

using Range = std::array<double, 2>;
using Points = std::vector<std::array<double, 2>>;  // (size, seconds), ascending

/// [[comm]]: one op, group size, network and algorithm. op: alltoall allgather reducescatter allreduce sendrecv
/// a2a-ep-esp saa.
struct CommRow {
  std::string op;
  Network network = Network::inter;
  int ranks = 0;  // of the group, not of the cluster
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  std::string algorithm = "direct";
  std::optional<double> r_squared, held_out_error;
  std::optional<Range> range_bytes;
  Points points;  // measured curve, used inside its range instead of alpha and beta
};

/// [[compute]]: gemm (gemms * alpha + flops * beta), expert (with ffn, as a whole) or copy (beta_s_per_byte).
struct ComputeRow {
  std::string op;
  std::optional<Ffn> ffn;
  DType dtype = DType::float32;
  double alpha_s = 0;
  double beta_s_per_flop = 0;
  double beta_s_per_byte = 0;
  std::optional<double> r_squared, held_out_error;
  std::optional<Range> range_flops;
};

/// [[module]]: a profiled sub-module, used instead of gemm where present (FSMoE section 3.2). beta applies to the
/// FLOPs or bytes of its own phase (modules.h); the other one is 0.
struct ModuleRow {
  std::string name;  // modules.h
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  double alpha_s = 0;
  double beta_s_per_flop = 0;
  double beta_s_per_byte = 0;
  std::optional<double> r_squared = {}, held_out_error = {};
  std::optional<Range> range = {};  // of its FLOPs or bytes
  double beta() const { return beta_s_per_flop + beta_s_per_byte; }
};

struct Profile {
  std::string name;
  std::string source;
  std::string file;  // where it was read from, for messages
  int nodes = 1, ranks_per_node = 1;
  std::optional<double> memory_bytes;  // of one rank; empty: unknown
  std::vector<CommRow> comm;
  std::vector<ComputeRow> compute;
  std::vector<ModuleRow> modules;
  double task_overhead_s = 0;
  Contention contention;
};

/// Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Profile read_profile(const std::string& path);
/// TOML that read_profile reads back to the same values (17 digits).
void write_profile(const Profile& profile, std::ostream& out);

/// NAME of configs/clusters/NAME.toml, or a path to a file. Throws BadInput listing the known names.
Profile find_profile(const std::string& name_or_path);

}  // namespace moe
