#include "moe/comm/gloo/gloo_world.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "moe/base/threads.h"
#include "moe/comm/gloo/detail/bootstrap.h"
#include "moe/comm/gloo/detail/gloo_state.h"
#include "moe/comm/store/socket.h"
#include "moe/comm/store/store.h"
#include "moe/device/cpu/cores.h"

namespace moe {
namespace {

constexpr double kRefusalPatienceS = 5;  // time for all ranks to report a refusal that one has reported

using gloo::State;

int posted_port(const LaunchBoard& board, double timeout_s) {
  for (const double deadline_s = now_s() + timeout_s; board.port() == 0;) {
    if (const auto failure = board.failure()) throw RankFailure(*failure);
    require<RankFailure>(now_s() < deadline_s, "rank 0 did not open its store within {:.1f} s", timeout_s);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return board.port();
}

/// Opens the store of the launch; rank 0 serves it unless the launcher does.
std::shared_ptr<store::Store> open_store(const Launch& launch, double start_s, State& state,
                                         std::unique_ptr<store::PortFile>& port_file) {
  const double deadline_s = now_s() + start_s;
  store::Address address{launch.host, launch.port};
  const bool on_board = launch.host.empty() && launch.board;
  if (launch.host.empty()) address = {store::loopback_address(), 0};
  if (launch.rank == 0 && !launch.served) {
    state.server = std::make_unique<store::Server>(address);
    address = state.server->address();
    if (on_board) launch.board->post_port(address.port);
    if (!launch.port_file.empty())
      port_file = std::make_unique<store::PortFile>(launch.port_file, address.port, launch.names.rendezvous);
  } else if (on_board) {
    address.port = posted_port(*launch.board, start_s);
  } else if (!launch.port_file.empty()) {
    address.port = store::wait_for_port(launch.port_file, start_s);
  }
  const std::string server = launch.served ? "the launcher's store" : "rank 0";
  const bool listens = launch.host.empty() || store::wait_for_listener(address, deadline_s);
  require<RankFailure>(listens, "{} did not open its store at {}:{} within {:.1f} s", server, address.host,
                       address.port, start_s);
  return std::make_shared<store::Store>(address, launch.run, server, state.timeout_s);
}

/// Fills the store, the rank and the topology of `state`. It returns on all ranks or on none.
void join_run(const Launch& launch, const GlooJob& job, double start_s, State& state) {
  const auto peers = gloo::bootstrap(state.store, launch, gloo::own_info(launch, job), start_s);
  store::Store& store = *state.store;
  const gloo::Ranking ranking = gloo::assign_ranks_by_node(peers, launch.ranks_per_node, launch.names);
  state.rank = ranking.world_rank[launch.rank];
  state.topology.nodes = ranking.nodes;
  state.topology.ranks_per_node = ranking.ranks_per_node;
  const std::string& machine = peers[launch.rank].machine;
  state.ranks_of_machine = 0;
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank].machine != machine) continue;
    if (static_cast<int>(rank) < launch.rank) ++state.topology.local_rank;
    ++state.ranks_of_machine;
  }
  gloo::FailureDetector::announce(store, state.rank);
  gloo::exchange_addresses(store, launch, ranking, state.topology, state.timeout_s);
}

/// Requires enough open files: otherwise Gloo's threads end the process when they accept connections.
void require_open_files(int rank) {
  constexpr rlim_t kMinFiles = 40;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kMinFiles) return;
  throw RankFailure(fmt::format("rank {} found a limit of {} open files, expected at least {} (ulimit -n)", rank,
                                files.rlim_cur, kMinFiles));
}

void start(const Launch& launch, const GlooJob& job, double start_s, bool ends_process,
           const std::shared_ptr<State>& state) {
  std::unique_ptr<store::PortFile> port_file;  // needed only until all are here
  state->store = open_store(launch, start_s, *state, port_file);
  try {
    require_open_files(launch.rank);
    join_run(launch, job, start_s, *state);
  } catch (const std::exception& error) {
    const bool of_another = dynamic_cast<const RankFailure*>(&error);
    try {
      gloo::refuse(*state->store,
                   of_another ? error.what() : fmt::format("rank {} failed: {}", launch.rank, error.what()));
      gloo::part(*state->store, launch);
    } catch (const store::StoreLost&) {  // no store is left to tell the others
    }
    throw;
  }
  State* const shared = state.get();  // the state outlives its detector
  state->detector = std::make_unique<gloo::FailureDetector>(
      state->store,
      gloo::FailureDetector::Rank{.rank = state->rank,
                                  .ranks = launch.ranks,
                                  .timeout_s = state->timeout_s,
                                  .waits = [shared] { return shared->waits(); },
                                  .abort = [shared] { shared->abort(); },
                                  .line = [shared](const std::string& reason) { return shared->line(reason); },
                                  .ends_process = ends_process});
}

bool bound_by_launcher() { return static_cast<long>(cpu::usable_cores().size()) < sysconf(_SC_NPROCESSORS_ONLN); }

}  // namespace

GlooWorld::GlooWorld(const Launch& launch, const GlooJob& job, double timeout_s, double start_s, bool ends_process)
    : state_(std::make_shared<State>()), exceptions_(std::uncaught_exceptions()) {
  state_->timeout_s = timeout_s;
  state_->topology.addresses.resize(1);
  try {
    if (launch.ranks > 1) start(launch, job, start_s, ends_process, state_);
  } catch (const RankFailure& failure) {
    throw RankFailure(fmt::format("rank {} in start: {}", launch.rank, failure.what()));
  }
  std::vector<int> all(launch.ranks);
  std::iota(all.begin(), all.end(), 0);
  state_->world = state_->make_group("world", all);
}

GlooWorld::~GlooWorld() {
  if (std::uncaught_exceptions() > exceptions_ && !state_->failed())
    state_->fail(fmt::format("rank {} failed", state_->rank));
  state_->close();
}

int GlooWorld::ranks() const { return state_->world->size(); }
std::vector<int> GlooWorld::local_ranks() const { return {state_->rank}; }
const WorldTopology& GlooWorld::topology() const { return state_->topology; }

std::unique_ptr<Communicator> GlooWorld::communicator(int rank) {
  require_equal<BadInput>(rank, state_->rank, "the rank of a communicator, of which this process has one");
  return gloo::make_communicator(state_, state_->world);
}

std::string GlooWorld::failure() const { return state_->failed() ? state_->verdict() : ""; }
void GlooWorld::fail(const std::string& why) { state_->fail(why); }

bool GlooWorld::every_rank_refuses(const std::string& why) {
  if (ranks() == 1) return true;
  // Uses the store instead of a collective, because a rank that does not refuse may be in another collective.
  const std::string name = fmt::format("refusal/{}", refusals_++);
  const std::vector<std::string> keys = gloo::rank_keys(name, ranks());
  try {
    store::Store& store = *state_->store;
    store.set(keys[state_->rank], why);
    store.wait(keys, std::min(state_->timeout_s, kRefusalPatienceS), [&] { return state_->failed(); });
    if (!store.check(keys)) return false;
    for (const std::string& other : store.get_all(keys))
      if (other != why) return false;
  } catch (const store::StoreLost&) {
    return false;
  }
  const std::lock_guard lock(state_->mutex);
  state_->kept_groups.clear();  // groups of the work that was refused
  return true;
}

void GlooWorld::run(const std::function<void(int rank)>& body) {
  std::exception_ptr error;
  std::optional<std::string> refusal;
  const auto fail = [&](const std::string& why) {
    if (!state_->failed()) state_->fail(fmt::format("rank {} failed{}", state_->rank, why));
  };
  const auto rank_body = [&] {
    if (!bound_by_launcher()) cpu::restrict_to_share(state_->topology.local_rank, state_->ranks_of_machine);
    try {
      body(state_->rank);
    } catch (const Unsupported& thrown) {
      error = std::current_exception();
      refusal = thrown.what();
    } catch (const std::exception& thrown) {
      error = std::current_exception();
      fail(fmt::format(": {}", thrown.what()));
    } catch (...) {
      error = std::current_exception();
      fail("");
    }
  };
  try {
    start_thread(fmt::format("rank {}", state_->rank), rank_body).join();
  } catch (const RankFailure& thrown) {
    fail(fmt::format(": {}", thrown.what()));
    throw;
  }
  if (refusal && !every_rank_refuses(*refusal)) fail(fmt::format(": {}", *refusal));
  if (error) std::rethrow_exception(error);
}

}  // namespace moe
