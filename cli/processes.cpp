#include "cli/processes.h"

#include "cli/errors.h"
#include "moe/base/check.h"
#include "moe/comm/gloo/gloo_world.h"

namespace moe {
namespace {

// What all ranks must have in common: the command line, but for the flag that tells them apart.
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
  std::string text = fmt::format("{}: {} ranks, {} node{} x {}", world.backend(), world.ranks(), topology.nodes,
                                 topology.nodes > 1 ? "s" : "", topology.ranks_per_node);
  if (launch.ranks_per_node > 0) text += " (by --ranks-per-node)";
  if (topology.interface.empty()) return text;
  text += fmt::format(", over {}", topology.interface);
  for (size_t rank = 0; rank < topology.addresses.size(); rank += static_cast<size_t>(topology.ranks_per_node))
    text += fmt::format("{} {}", rank == 0 ? ":" : ",", topology.addresses[rank]);
  return text;
}

// Whether another rank found the same, and was first to tell: then it is that one's line.
bool said_by_another(Communicator& all, const std::string& what) {
  try {
    all.split(0, 0);
  } catch (const RankFailure& end) {
    const std::string_view why = end.what();
    return why.ends_with(" aborted: " + what) && !why.ends_with(fmt::format("rank {} aborted: {}", all.rank(), what));
  }
  return false;
}

}  // namespace

std::unique_ptr<World> start_processes(const RanksFlags& flags, const std::vector<std::string>& argv) {
  if (flags.backend == "local") {
    require<BadInput>(!flags.rank && !flags.ranks && flags.rendezvous.empty() && flags.ranks_per_node == 0,
                      "--backend: found local, whose ranks are threads; expected gloo with --rank, --ranks, "
                      "--rendezvous or --ranks-per-node");
    return nullptr;
  }
  const Launch launch = find_launch({flags.rank, flags.ranks, flags.rendezvous, flags.ranks_per_node});
  if (launch.rank == 0) fmt::print(stderr, "moetune: {}\n", describe(launch));
  auto world = std::make_unique<GlooWorld>(launch, GlooJob{MOETUNE_VERSION, job_of(argv)}, flags.timeout_s);
  if (leads(*world)) fmt::print(stderr, "moetune: {}\n", who_is_where(*world, launch));
  return world;
}

int run_together(World* processes, const std::function<int()>& verb) {
  if (processes == nullptr) return verb();
  try {
    return verb();
  } catch (const RankFailure&) {  // the others know
    throw;
  } catch (const std::exception& error) {
    const auto all = processes->communicator(processes->here().front());
    all->abort(error.what());
    const bool bad_input = dynamic_cast<const BadInput*>(&error), wrong = dynamic_cast<const WrongResult*>(&error);
    if (!bad_input && !wrong) throw RankFailure(fmt::format("rank {} failed: {}", all->rank(), error.what()));
    // At once: a launcher may end us as soon as another rank has ended.
    if (!said_by_another(*all, error.what())) fmt::print(stderr, "moetune: {}\n", error.what());
    return bad_input ? kBadInput : kWrongResult;
  }
}

}  // namespace moe
