// Every dispatcher brings the same blocks to the same ranks, on every placement of EP groups on up to 8 ranks; what
// goes between nodes meanwhile is counted, message by message.
#include "moe/layer/dispatchers/dispatcher.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "moe/shape/groups.h"
#include "tests/base/error_of.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/layer/local_layers.h"
#include "tests/layer/wire_count.h"

namespace moe {
namespace {

using Bytes = std::vector<std::byte>;

struct Placement {
  ParallelShape parallel;
  std::string name() const {
    return fmt::format("{} nodes of {}, ep {}, esp {}{}", parallel.nodes, parallel.ranks_per_node, parallel.ep,
                       parallel.esp, parallel.ep_inside ? ", ep inside" : "");
  }
  int node_of(int rank) const { return rank / parallel.ranks_per_node; }
  /// The EP peers of `rank` on each node that holds some.
  std::map<int, int> peers_by_node(int rank) const {
    std::map<int, int> peers;
    for (const int member : members(parallel, GroupKind::ep, rank)) ++peers[node_of(member)];
    return peers;
  }
  bool even(int rank) const {
    const auto peers = peers_by_node(rank);
    return std::ranges::all_of(peers, [&](const auto& node) { return node.second == peers.begin()->second; });
  }
};

std::vector<Placement> placements() {
  std::vector<Placement> all;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int per_node = 1; per_node <= ranks; ++per_node)
      for (int ep = 1; ep <= ranks && ranks % per_node == 0; ++ep)
        for (int esp = 1; ranks % ep == 0 && esp <= ranks / ep; ++esp)
          for (const bool inside : {false, true})
            if (ranks % (ep * esp) == 0 && !(inside && esp == 1))
              all.push_back({{.nodes = ranks / per_node,
                              .ranks_per_node = per_node,
                              .dp = ranks,
                              .mp = 1,
                              .ep = ep,
                              .esp = esp,
                              .edp = ranks / (ep * esp),
                              .ep_inside = inside}});
  return all;
}

/// Runs body on each rank with its EP group's communicator, whose messages `wire` counts.
void on_ranks(const Placement& placement, WireCount& wire,
              const std::function<void(int rank, Communicator& ep, Stream& lane)>& body) {
  LocalWorld world(placement.parallel.ranks());
  world.run([&](int rank) {
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("lane");
    const auto all = counted(world.communicator(rank), wire);
    const auto ep = all->split(members(placement.parallel, GroupKind::ep, rank).front(), rank);
    body(rank, *ep, *lane);
    lane->synchronize();
  });
}

DispatcherSetup setup_of(const Placement& placement, int rank, Communicator& ep, int64_t block) {
  return {ep, placement.parallel.ranks_per_node, rank, true, block * ep.size()};
}

/// Blocks that tell source, destination and index apart; twice, so that scratch of one exchange can't serve the next.
void check_exchange(Dispatcher& dispatcher, Communicator& ep, int rank, Stream& lane, int64_t block) {
  const auto peers = static_cast<size_t>(ep.size());
  const std::vector<int64_t> sizes(peers, block);
  for (const int buffer : {0, 1}) {
    const Bytes send = bytes_of_rank(rank, buffer, block * ep.size());
    Bytes receive(send.size()), expected(send.size());
    ep.alltoall(send.data(), expected.data(), block, {lane});
    dispatcher.exchange({send.data(), sizes, receive.data(), sizes}, {lane});
    lane.synchronize();
    EXPECT_TRUE(receive == expected) << "blocks of " << block << " bytes on rank " << rank;
  }
}

TEST(DispatcherTest, AllBringWhatOneAlltoallBringsOnEveryPlacement) {
  int checked = 0, refused = 0;
  for (const Placement& placement : placements())
    for (const std::string_view name : dispatcher_names()) {
      SCOPED_TRACE(fmt::format("{}: {}", name, placement.name()));
      WireCount wire;
      std::atomic<int> uneven{0};
      on_ranks(placement, wire, [&](int rank, Communicator& ep, Stream& lane) {
        if (name != "alltoall" && !placement.even(rank)) {
          ++uneven;
          EXPECT_THROW(make_dispatcher(name, setup_of(placement, rank, ep, 8)), Unsupported);
          return;
        }
        const auto dispatcher = make_dispatcher(name, setup_of(placement, rank, ep, 1021));
        for (const int64_t block : {1021, 0, 1, 64}) check_exchange(*dispatcher, ep, rank, lane, block);
      });
      ++checked, refused += uneven > 0;
    }
  EXPECT_GT(checked, 300);
  EXPECT_GT(refused, 0);
}

/// Between two nodes that hold n peers of a group each: n^2 messages of b bytes, n of n b, one of n^2 b.
std::vector<int64_t> messages(std::string_view dispatcher, int64_t n, int64_t block) {
  const auto times = [](int64_t count, int64_t bytes) {
    return std::vector<int64_t>(static_cast<size_t>(count), bytes);
  };
  if (dispatcher == "1dh") return times(1, n * n * block);
  return dispatcher == "2dh" ? times(n, n * block) : times(n * n, block);
}

TEST(DispatcherTest, MessagesBetweenNodesAreAsManyAndAsLargeAsTheirFormulasSay) {
  constexpr int64_t kBlock = 48;
  for (const auto& [nodes, per_node] : {std::pair{2, 2}, {2, 4}, {4, 2}, {3, 2}, {2, 3}, {4, 1}, {1, 4}})
    for (const std::string_view name : dispatcher_names()) {
      SCOPED_TRACE(fmt::format("{} on {} nodes of {}", name, nodes, per_node));
      const Placement placement{{.nodes = nodes,
                                 .ranks_per_node = per_node,
                                 .dp = nodes * per_node,
                                 .mp = 1,
                                 .ep = nodes * per_node,
                                 .esp = 1,
                                 .edp = 1}};
      WireCount wire;
      on_ranks(placement, wire, [&](int rank, Communicator& ep, Stream& lane) {
        const Bytes send = bytes_of_rank(rank, 0, kBlock * ep.size());
        Bytes receive(send.size());
        const std::vector<int64_t> sizes(ep.size(), kBlock);
        const auto dispatcher = make_dispatcher(name, setup_of(placement, rank, ep, kBlock));
        dispatcher->exchange({send.data(), sizes, receive.data(), sizes}, {lane});
        lane.synchronize();
      });
      for (int from = 0; from < nodes; ++from)
        for (int to = 0; to < nodes; ++to)
          if (from != to) {
            EXPECT_EQ(wire.between(from, to, per_node), messages(name, per_node, kBlock));
          }
    }
}

TEST(DispatcherTest, APaceCountsOnceForTheWholeExchange) {
  const Placement placement{{.nodes = 2, .ranks_per_node = 2, .dp = 4, .mp = 1, .ep = 4, .esp = 1, .edp = 1}};
  for (const std::string_view name : dispatcher_names()) {
    SCOPED_TRACE(name);
    std::array<double, 4> begin{}, end{};
    WireCount wire;
    on_ranks(placement, wire, [&](int rank, Communicator& ep, Stream& lane) {
      const auto dispatcher = make_dispatcher(name, setup_of(placement, rank, ep, 64));
      const Bytes send(256);
      Bytes receive(256);
      const std::vector<int64_t> sizes(4, 64);
      lane.launch([&, r = static_cast<size_t>(rank)](void*) {
        sleep_until_s(now_s() + 0.02 * rank);
        begin[r] = now_s();
      });
      dispatcher->exchange({send.data(), sizes, receive.data(), sizes}, {lane, {.at_least_s = 0.2}});
      lane.launch([&, r = static_cast<size_t>(rank)](void*) { end[r] = now_s(); });
      lane.synchronize();
    });
    const double last = *std::ranges::max_element(begin);
    EXPECT_GE(*std::ranges::min_element(end), last + 0.2);
    EXPECT_LT(*std::ranges::max_element(end), last + 0.4);
  }
}

TEST(DispatcherTest, RefusalsNameTheDispatcherAndTheGroup) {
  // Ranks 0, 2, 4 and 6, 8, 10 on nodes of 4: two on one node, one on the next.
  const Placement placement{{.nodes = 3, .ranks_per_node = 4, .dp = 12, .mp = 1, .ep = 3, .esp = 2, .edp = 2}};
  WireCount wire;
  on_ranks(placement, wire, [&](int rank, Communicator& ep, Stream&) {
    for (const std::string_view name : {"1dh", "2dh"}) {
      DispatcherSetup setup = setup_of(placement, rank, ep, 8);
      const std::string uneven = error_of<Unsupported>([&] { make_dispatcher(name, setup); });
      EXPECT_NE(uneven.find(fmt::format("dispatcher {}:", name)), std::string::npos) << uneven;
      EXPECT_NE(uneven.find(fmt::format("rank {}'s EP group", rank)), std::string::npos) << uneven;
      setup.equal = false;
      const std::string unequal = error_of<Unsupported>([&] { make_dispatcher(name, setup); });
      EXPECT_NE(unequal.find(fmt::format("dispatcher {}: blocks are of unequal sizes", name)), std::string::npos);
    }
  });
  EXPECT_THROW(make_dispatcher("3dh", setup_of(placement, 0, *LocalWorld(1).communicator(0), 8)), BadInput);
}

TEST(DispatcherTest, ALayerIsTheReferencesUnderEachWithEveryHook) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 12, .hidden = 24, .heads = 4, .experts = 8};
  layer.dtype = DType::float64;
  for (const Part& dispatcher : dispatcher_parts())
    for (const Part& hook : hook_parts()) {
      layer.dispatcher = dispatcher.name;
      layer.hook = hook.name;
      const ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 4, .esp = 1};
      const LayerCase shape = complete(layer, parallel, Rounding::ragged);
      LocalLayers layers(shape, {.seed = 5});
      layers.run(plan_for(shape, "fsmoe", 2, 3));
      EXPECT_NO_THROW(verify_layer(layers.ranks())) << dispatcher.name << " " << hook.name;
    }
}

}  // namespace
}  // namespace moe
