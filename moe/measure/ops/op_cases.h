#pragma once
// The cases of microbench: collectives and GEMMs at FSMoE's sizes (section 6.2), and modules if a profile has them or
// they are requested.
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/prices/profile.h"
#include "moe/record/record.h"

namespace moe::measure {

/// Groups of `ranks` ranks that are `step` apart. Remaining ranks, too few for another group, are in no group.
struct RankGroup {
  int ranks = 1, step = 1;
  auto operator<=>(const RankGroup&) const = default;
  /// Returns the first rank of the group that would have `rank`.
  int first_of(int rank) const { return rank - rank / step % ranks * step; }
};

/// The phases of Parm's SAA (section III-D). In each phase a rank exchanges a slice with the ranks of one node, while
/// the slice of the previous phase is gathered inside the node. MP and ESP groups are the ranks of a node.
struct OpPhases {
  int count = 0;  // number of nominal nodes; 0: the op has no phases
  RankGroup node = {};
  double exchange_s = 0, gather_s = 0;  // modelled seconds of one phase
  /// Returns the seconds of all phases together.
  double seconds() const;
};

/// One op at one size. Nominal sizes determine the pace and the record; real sizes are those of the data that is moved
/// or multiplied.
struct OpCase {
  Op op = Op::none;                 // a collective, sendrecv, host_copy, gemm or module
  Network network = Network::none;  // network of a collective's group
  int ranks = 0;                    // ranks of its nominal group
  int nominal_ranks_per_node = 0;   // as CommRow::ranks_per_node
  double bytes = 0;                 // volume as FSMoE counts it
  double flops = 0;
  DType dtype = DType::float32;
  std::string module;              // name of a module, such as "gate:gshard"
  std::optional<LayerCase> shape;  // case of the layer whose module runs; empty: a GEMM runs under its pace
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  double modelled_s = 0;  // seconds on the emulated cluster; 0: unpaced
  double dilation = 1;    // the same for all sizes of an op: the smallest lasts 2 ms
  RankGroup group = {};   // the real group; the first rank of a sendrecv's group sends
  OpPhases phases = {};   // for op saa
  /// The algorithm of an alltoall: "direct", or a dispatcher (dispatcher.h) for `ranks_per_node` of the group's ranks
  /// on each node.
  std::string algorithm = CommRow().algorithm;
  int ranks_per_node = 1;
  int64_t real_elements = 0;  // number of elements in a collective's real volume
  int64_t real_dim = 0;       // size of the square matrices that are multiplied
  double size() const { return bytes > 0 ? bytes : flops; }
  bool is_dispatched() const { return algorithm != CommRow().algorithm; }
  /// Cases with the same series are fitted together: "alltoall inter 8", "alltoall inter 8 2dh".
  std::string series() const;
  std::string key() const;  // "alltoall/inter/8/1048576"
  Fields parameters(const Profile& cluster) const;
};

/// The volumes of collectives in bytes: from `begin` to `end`, each `factor` times the previous one or, if `step` > 0,
/// `step` bytes larger. `end` 0: FSMoE's sizes, 2^18 .. 24 2^18 float elements in steps of 2^18; real cases divide them
/// by a number that depends on the backend.
struct OpSizes {
  int64_t begin = 0, end = 0, step = 0;
  double factor = 2;
  DType dtype = DType::float32;  // also the type of real GEMMs
};
/// Returns `requested_sizes` or, if it is empty, the default sizes for GPUs: 1 MiB to 256 MiB, each 1.4 times the
/// previous one.
OpSizes gpu_sizes(const OpSizes& requested_sizes);
/// Returns the sizes for layers of a type, or those of float32 if the device does not support the type.
OpSizes sizes_for(DType layers, DeviceKind device);
/// Returns the volumes in bytes. Throws BadInput for bounds that are out of order, or a factor of at most 1.
std::vector<int64_t> bytes_of(const OpSizes& sizes, int64_t share);

/// Returns the cases for an emulated cluster, paced by their rows: the direct rows of `cluster` at FSMoE's sizes or at
/// `sizes`; GEMMs of square matrices with 2^19 .. 12 2^19 elements; modules over the candidates of FSMoE's Table 4.
std::vector<OpCase> emulated_cases(const Profile& cluster, const OpSizes& sizes = {});

/// Returns the real, unpaced cases over `backend`: alltoall and allreduce over one rank of each node, allgather and
/// reducescatter inside nodes, for groups of at least two ranks; sendrecv between neighbouring nodes and inside nodes,
/// all pairs at once; allreduce over each group of `sums`; GEMM, in 16-bit types only on a GPU. Sizes are rounded so
/// that every rank has whole elements, at least one. On a GPU, collectives have gpu_sizes() and matrices are up to 8192
/// x 8192.
std::vector<OpCase> real_cases(const Profile& cluster, std::string_view backend, const OpSizes& requested_sizes = {},
                               DeviceKind device = DeviceKind::cpu,
                               std::span<const std::pair<Network, RankGroup>> sums = {});
/// These return the cases that Parm's choice between S1 and S2 needs in addition to an AllGather: `a2a-ep-esp`, an
/// alltoall over all ranks, and `saa`, the same in phases that overlap with AllGathers (OpPhases). Empty unless there
/// are several nodes of several ranks. On an emulated cluster, the exchange takes the time of its row or of the
/// alltoall between nodes.
std::vector<OpCase> emulated_parm_cases(const Profile& cluster, const OpSizes& sizes = {});
std::vector<OpCase> real_parm_cases(const Profile& cluster, std::string_view backend,
                                    const OpSizes& requested_sizes = {}, DeviceKind device = DeviceKind::cpu);
/// These return cases of an alltoall over all ranks by each of these dispatchers. Real cases include the direct
/// alltoall and require several nodes of several ranks; emulated cases follow the profile's rows.
std::vector<OpCase> emulated_dispatcher_cases(const Profile& cluster, const std::set<std::string>& dispatchers,
                                              const OpSizes& sizes = {});
std::vector<OpCase> real_dispatcher_cases(const Profile& cluster, std::string_view backend,
                                          const std::set<std::string>& dispatchers, const OpSizes& requested_sizes = {},
                                          DeviceKind device = DeviceKind::cpu);
/// These return cases of a copy from the host's memory to the device's, by all ranks at once: real ones with the sizes
/// of collectives, emulated ones by the profile's row.
std::vector<OpCase> emulated_host_copies(const Profile& cluster, const OpSizes& sizes = {});
std::vector<OpCase> real_host_copies(std::string_view backend, const OpSizes& requested_sizes = {},
                                     DeviceKind device = DeviceKind::cpu);
/// Returns the bytes of the buffers that a rank needs for a case.
double buffer_bytes(const OpCase& c);
/// Returns real cases of the named modules, forward and backward: B {1 .. 16} with L = 64, and M alternating between 64
/// and 128; attention at L = 64, 128 and 256, each as a separate series.
std::vector<OpCase> module_cases(std::span<const std::string> modules, const Profile& host);

}  // namespace moe::measure
