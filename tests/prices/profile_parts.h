#pragma once
// A profile's file as text, its first row of an op, and a small profile with a layer that it prices.
#include <algorithm>
#include <sstream>
#include <string>

#include "moe/prices/profile.h"

namespace moe {

inline std::string text_of(const Profile& profile) {
  std::ostringstream out;
  write_profile(profile, out);
  return out.str();
}

inline CommRow& row_of(Profile& profile, Op op) {
  return *std::ranges::find_if(profile.comm, [&](const CommRow& row) { return row.op == op; });
}

// Two nodes of two ranks with every row that a layer needs; sizes are powers of ten, so that times are readable.
inline Profile small_profile() {
  Profile p;
  p.name = "small";
  p.nodes = p.ranks_per_node = 2;
  const auto add = [&](Op op, Network network, double alpha, double beta) {
    CommRow row;
    row.op = op;
    row.network = network;
    row.ranks = 2;
    row.alpha_s = alpha;
    row.beta_s_per_byte = beta;
    p.comm.push_back(row);
  };
  add(Op::alltoall, Network::inter, 1e-4, 1e-9);
  add(Op::allreduce, Network::inter, 2e-4, 2e-9);
  add(Op::allgather, Network::intra, 3e-5, 3e-10);
  add(Op::reducescatter, Network::intra, 4e-5, 4e-10);
  ComputeRow gemm;
  gemm.op = Op::gemm;
  gemm.alpha_s = 5e-6;
  gemm.beta_s_per_flop = 1e-12;
  p.compute.push_back(gemm);
  return p;
}

inline LayerCase small_case(ParallelShape parallel = {.nodes = 2, .ranks_per_node = 2}) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  return complete(layer, parallel, Rounding::ragged);
}

}  // namespace moe
