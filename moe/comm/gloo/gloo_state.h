#pragma once
// What the communicators of one process share.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/comm/gloo/gloo_group.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/gloo/watch.h"
#include "moe/comm/store/store.h"

namespace moe {

struct GlooWorld::State {
  ~State() { close(); }
  /// Closes all connections, then leaves the run.
  void close();

  int rank = 0;
  double timeout_s = 0;
  WorldTopology topology;
  int ranks_of_machine = 1;

  // One rank alone has none of these.
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::unique_ptr<gloo::Watch> watch;

  std::shared_ptr<gloo::Group> world;
  std::mutex mutex;
  std::vector<std::weak_ptr<gloo::Group>> groups;  // guarded by mutex, as the next
  std::vector<std::shared_ptr<gloo::Group>> kept;
  bool aborted = false;
  std::atomic<int> connecting{0};     // groups that are being made
  std::optional<std::string> reason;  // of one rank alone; else the watch knows

  /// A group that abort() reaches. Blocks until its members are connected; throws RankFailure.
  std::shared_ptr<gloo::Group> make_group(const std::string& name, const std::vector<int>& world_ranks);
  /// Its connections stay open until the world is destroyed.
  void keep(std::shared_ptr<gloo::Group> group);
  void abort();
  std::vector<gloo::Watch::Wait> waits();
  /// "rank 1 in 'forward gate of layer 0' (alltoall): " + reason, of an operation that runs.
  std::string line(const std::string& why);

  bool failed();
  std::string verdict();
  /// Ends the run on all ranks; returns once they can know.
  void fail(const std::string& why);
  /// See Watch.
  void suspect(const gloo::Watch::Failure& failure, double patience_s);
  /// Runs an operation of `group`; throws RankFailure with its line if it breaks.
  void run(gloo::Group& group, std::string_view op, std::string_view task, const std::function<void()>& work);

 private:
  std::vector<std::shared_ptr<gloo::Group>> living();
};

std::unique_ptr<Communicator> make_gloo_communicator(std::shared_ptr<GlooWorld::State> state,
                                                     std::shared_ptr<gloo::Group> group);

}  // namespace moe
