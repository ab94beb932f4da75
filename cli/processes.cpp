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
    const int rank = processes->here().front();
    processes->communicator(rank)->abort(error.what());
    const bool bad_input = dynamic_cast<const BadInput*>(&error), wrong = dynamic_cast<const WrongResult*>(&error);
    if (!bad_input && !wrong) throw RankFailure(fmt::format("rank {} failed: {}", rank, error.what()));
    if (leads(*processes)) throw;
    return bad_input ? kBadInput : kWrongResult;
  }
}

}  // namespace moe
