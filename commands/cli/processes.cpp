#include "commands/cli/processes.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "commands/cli/commit.h"
#include "commands/cli/errors.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/nccl/nccl_world.h"
#include "moe/comm/nccl/own_gpus.h"
#include "moe/comm/store/store.h"
#include "moe/device/gpu_settings.h"
#include "moe/device/memory.h"
#include "moe/prices/fit.h"

namespace moe::cli {
namespace {

// Seconds in which the ranks of `launch` may start. Slow starts are no error, because `launch` itself reports ranks
// that ended.
constexpr double kLaunchedStartS = 60;

// Returns the part of the command line that all ranks must share: everything except --rank.
std::string job_of(const std::vector<std::string>& argv) {
  std::string job;
  for (size_t i = 1; i < argv.size(); ++i) {
    if (argv[i] == "--rank") {
      ++i;
      continue;
    }
    if (!argv[i].starts_with("--rank=")) job += (job.empty() ? "" : " ") + argv[i];
  }
  return job;
}

std::string who_is_where(const World& world, const Launch& launch) {
  const WorldTopology& topology = world.topology();
  std::string text = fmt::format("{}: {}, {} x {}", world.backend(), counted(world.ranks(), "rank"),
                                 counted(topology.nodes, "node"), topology.ranks_per_node);
  if (launch.ranks_per_node > 0) text += " (by --ranks-per-node)";
  if (topology.interface.empty()) return text;
  text += fmt::format(", over {}", topology.interface);
  for (size_t rank = 0; rank < topology.addresses.size(); rank += static_cast<size_t>(topology.ranks_per_node))
    text += fmt::format("{} {}", rank == 0 ? ":" : ",", topology.addresses[rank]);
  return text;
}

// A world with collectives by NCCL; the processes meet, and report failures, over Gloo.
class ControlledNcclWorld final : public World {
 public:
  ControlledNcclWorld(std::unique_ptr<GlooWorld> control, const RanksFlags& flags) : control_(std::move(control)) {
    NcclOptions options;
    options.rank = control_->local_ranks().front();
    options.size = control_->ranks();
    options.topology = control_->topology();
    options.local_rank = options.topology.local_rank;
    const auto gpus = gather(*control_, {gpu_setting(options.local_rank, "gpu_uuid")});
    if (const auto sharers = ranks_of_one_gpu(gpus)) {
      require<BadInput>(may_share_gpus(),
                        "NCCL: found ranks {} and {} on the same GPU, expected one for each of {} ranks",
                        sharers->first, sharers->second, gpus.size());
      backend_ = kNcclOnOneGpu;
    }
    // The store has one key, NCCL's unique id, which all ranks request at the same time.
    options.set = [this](const std::string&, const std::string& value) { broadcast(*control_, value); };
    options.get = [this](const std::string&) { return broadcast(*control_, {}); };
    options.failure = [this] { return control_->failure(); };
    options.fail = [this](const std::string& why) { control_->fail(why); };
    options.timeout_s = flags.timeout_s;
    options.min_ctas = flags.min_ctas;
    options.max_ctas = flags.max_ctas;
    nccl_ = make_nccl_world(std::move(options));
  }
  std::string_view backend() const override { return backend_; }
  int ranks() const override { return control_->ranks(); }
  std::vector<int> local_ranks() const override { return control_->local_ranks(); }
  const WorldTopology& topology() const override { return control_->topology(); }
  std::vector<std::pair<std::string, std::string>> settings() const override { return nccl_->settings(); }
  std::unique_ptr<Communicator> communicator(int rank) override { return nccl_->communicator(rank); }
  void run(const std::function<void(int rank)>& body) override { control_->run(body); }

 private:
  std::unique_ptr<GlooWorld> control_;
  std::unique_ptr<World> nccl_;
  std::string_view backend_ = "nccl";
};

// Returns whether another rank reports the same error and prints it.
bool reported_by_other_rank(Communicator& all, const std::string& what) {
  try {
    all.split(0, 0);
  } catch (const RankFailure& end) {
    const std::string_view why = end.what();
    for (const std::string_view how : {"aborted", "failed"})
      if (why.ends_with(fmt::format(" {}: {}", how, what)))
        return !why.ends_with(fmt::format("rank {} {}: {}", all.rank(), how, what));
  }
  return false;
}

// Ignores SIGPIPE, because Gloo may write to a connection that a failing rank closed; and sets NCCL's launch order.
void set_process(const RanksFlags& flags) {
  std::signal(SIGPIPE, SIG_IGN);
  store::silence_c10d();
  if (flags.implicit_launch_order) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

}  // namespace

std::unique_ptr<World> start_processes(const RanksFlags& flags, const std::vector<std::string>& argv) {
  if (flags.backend == Backend::local) return nullptr;
  const Launch launch = find_launch(
      {flags.rank, flags.ranks, flags.rendezvous, flags.ranks_per_node, {"--rendezvous", "--ranks-per-node"}});
  require<BadInput>(launch.ranks > 1 || launch.ranks_per_node <= 1,
                    "--ranks-per-node: found {}, expected 1 of a rank that is alone ({})", launch.ranks_per_node,
                    describe(launch));
  if (launch.ranks > 1) set_log_rank(launch.rank);
  if (launch.rank == 0) log_info(describe(launch));
  set_process(flags);
  const double start_s = launch.board ? std::max(flags.timeout_s, kLaunchedStartS) : flags.timeout_s;
  auto gloo = std::make_unique<GlooWorld>(launch, GlooJob{build_name(), job_of(argv)}, flags.timeout_s, start_s);
  std::unique_ptr<World> world;
  if (flags.backend == Backend::nccl)
    world = std::make_unique<ControlledNcclWorld>(std::move(gloo), flags);
  else
    world = std::move(gloo);
  if (is_leader(*world)) log_info(who_is_where(*world, launch));
  return world;
}

int run_together(World* processes, const std::function<int()>& verb) {
  if (processes == nullptr) return verb();
  try {
    return verb();
  } catch (const RankFailure&) {  // the other ranks have been notified
    throw;
  } catch (const std::exception& error) {
    const auto all = processes->communicator(processes->local_ranks().front());
    all->abort(error.what());
    const bool alone = dynamic_cast<const OutOfMemory*>(&error);  // other ranks may still have memory
    const bool bad_input = !alone && dynamic_cast<const BadInput*>(&error);
    const bool wrong = dynamic_cast<const WrongResult*>(&error);
    if (!bad_input && !wrong) throw RankFailure(fmt::format("rank {} failed: {}", all->rank(), error.what()));
    // Print before returning: a launcher may end this process as soon as another rank has ended.
    if (!reported_by_other_rank(*all, error.what())) report_line(error.what());
    if (dynamic_cast<const NoHardware*>(&error)) return kNoHardware;
    return bad_input ? kBadInput : kWrongResult;
  }
}

}  // namespace moe::cli
