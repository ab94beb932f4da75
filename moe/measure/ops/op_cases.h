#pragma once
// Lists the cases of microbench: collectives and GEMM at FSMoE's sizes (section 6.2), and modules if a profile has them
// or they are requested.
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/prices/profile.h"
#include "moe/record/record.h"

namespace moe::measure {

/// Groups of `ranks` ranks, each `step` after the one before; ranks that are too few for another group belong to none.
struct RankGroup {
  int ranks = 1, step = 1;
  auto operator<=>(const RankGroup&) const = default;
  /// Returns the first rank of the group that would have `rank`.
  int first_of(int rank) const { return rank - rank / step % ranks * step; }
};

/// The phases of Parm's SAA (section III-D): in each a rank exchanges a slice with the ranks of one node, and the slice
/// received before is gathered inside the node at the same time. MP and ESP are the ranks of a node.
struct OpPhases {
  int count = 0;  // number of nominal nodes; 0: the op has no phases
  RankGroup node = {};
  double exchange_s = 0, gather_s = 0;  // modelled seconds of one phase
  /// Returns the seconds of all phases together.
  double seconds() const;
};

/// One op at one size. Nominal sizes determine the pace and the record; real sizes are those that are moved or
/// multiplied under it.
struct OpCase {
  Op op = Op::none;                 // a collective, sendrecv, host_copy, gemm or module
  Network network = Network::none;  // network of a collective's group
  int ranks = 0;                    // ranks of its nominal group
  double bytes = 0;                 // volume as FSMoE counts it
  double flops = 0;
  DType dtype = DType::float32;
  std::string module;              // "gate:gshard"
  std::optional<LayerCase> shape;  // the layer of the module that really runs; none: a GEMM under its pace
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  double modelled_s = 0;  // on the emulated cluster; 0: unpaced
  double dilation = 1;    // one an op: its smallest size lasts 2 ms
  RankGroup group = {};   // that really runs it; of a sendrecv its first rank sends
  OpPhases phases = {};   // of an saa
  /// What an alltoall is made of: "direct", or a dispatcher (dispatcher.h) with so many of the group's ranks on a node.
  std::string algorithm = CommRow().algorithm;
  int ranks_per_node = 1;
  int64_t real_elements = 0;  // that a collective's volume really has
  int64_t real_dim = 0;       // of the square matrices really multiplied
  double size() const { return bytes > 0 ? bytes : flops; }
  bool is_dispatched() const { return algorithm != CommRow().algorithm; }
  std::string series() const;  // "alltoall inter 8", "alltoall inter 8 2dh": the cases that are fitted together
  std::string key() const;     // "alltoall/inter/8/1048576"
  Fields parameters(const Profile& cluster) const;
};

/// The volumes of collectives, in bytes: from `begin` to `end`, each `factor` times the one before, or `step` bytes
/// more if that is set. `end` 0: FSMoE's, 2^18 .. 24 2^18 float elements in steps of 2^18, of which real cases use a
/// share that their backend can carry.
struct OpSizes {
  int64_t begin = 0, end = 0, step = 0;
  double factor = 2;
  DType dtype = DType::float32;  // also for real GEMMs
};
/// Returns the sizes for a GPU if none are requested: 1 MiB to 256 MiB, each 1.4 times the one before.
OpSizes gpu_sizes(const OpSizes& asked);
/// Returns the sizes for layers of a type, or those of float32 if the device does not support the type.
OpSizes sizes_for(DType layers, DeviceKind device);
/// Returns the volumes. Throws BadInput for bounds out of order, factors of at most 1.
std::vector<int64_t> bytes_of(const OpSizes& sizes, int64_t share);

/// Returns the direct rows of `cluster` at FSMoE's sizes, or `sizes`; GEMM 2^19 .. 12 2^19 elements of square matrices;
/// modules over the candidates of FSMoE's Table 4. Each case is paced by its row.
std::vector<OpCase> emulated_cases(const Profile& cluster, const OpSizes& sizes = {});

/// Returns the real cases over `backend`, unpaced: alltoall and allreduce of one rank per node, allgather and
/// reducescatter inside nodes, if there are at least two; sendrecv between neighbouring nodes and inside them, all
/// pairs at once; allreduce over each group of `sums`; GEMM, in 16 bits only on a GPU. Sizes are cut to whole elements
/// for every rank, at least one. On a GPU collectives have gpu_sizes, and matrices are up to 8192 x 8192.
std::vector<OpCase> real_cases(const Profile& cluster, std::string_view backend, const OpSizes& asked = {},
                               DeviceKind device = DeviceKind::cpu,
                               std::span<const std::pair<Network, RankGroup>> sums = {});
/// Return the cases that Parm's choice between S1 and S2 needs beside an AllGather: `a2a-ep-esp`, an alltoall over all
/// ranks, and `saa`, the same in phases with AllGathers beside it (OpPhases); none unless there are several nodes of
/// several ranks. On an emulated cluster the exchange takes its row's time, or that of the alltoall between nodes.
std::vector<OpCase> emulated_parm_cases(const Profile& cluster, const OpSizes& sizes = {});
std::vector<OpCase> real_parm_cases(const Profile& cluster, std::string_view backend, const OpSizes& asked = {},
                                    DeviceKind device = DeviceKind::cpu);
/// Return the cases of an alltoall over all ranks by each of these dispatchers: real ones beside the direct one, if
/// there are several nodes of several ranks; emulated ones by the profile's rows.
std::vector<OpCase> emulated_dispatcher_cases(const Profile& cluster, const std::set<std::string>& dispatchers,
                                              const OpSizes& sizes = {});
std::vector<OpCase> real_dispatcher_cases(const Profile& cluster, std::string_view backend,
                                          const std::set<std::string>& dispatchers, const OpSizes& asked = {},
                                          DeviceKind device = DeviceKind::cpu);
/// Return the cases of a copy from the host's memory to the device's, by all ranks at once: real ones of the sizes of
/// collectives, emulated ones by the profile's row.
std::vector<OpCase> emulated_host_copies(const Profile& cluster, const OpSizes& sizes = {});
std::vector<OpCase> real_host_copies(std::string_view backend, const OpSizes& asked = {},
                                     DeviceKind device = DeviceKind::cpu);
/// Returns the bytes that a rank has in memory to run a case.
double buffer_bytes(const OpCase& c);
/// Returns cases of the registries' modules by name, forward and backward, on this machine: B {1 .. 16} L 64 tokens,
/// with M 64 and 128 in turn; attention at L 64, 128, 256, each as a separate series.
std::vector<OpCase> module_cases(std::span<const std::string> modules, const Profile& host);

}  // namespace moe::measure
