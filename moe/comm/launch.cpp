#include "moe/comm/launch.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <unistd.h>

#include "moe/base/check.h"

namespace moe {
namespace {

/// The environment variables that one launcher sets; an empty name: the launcher sets no such variable.
struct Launcher {
  std::string_view name, rank, ranks, ranks_here, job;
};

constexpr std::array kLaunchers{
    Launcher{"torchrun's variables", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    Launcher{"Open MPI's variables", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
             "PMIX_NAMESPACE"},
    Launcher{"PMI's variables", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"},
    Launcher{"MVAPICH's variables", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", ""},
};
// A batch script is not a rank, yet it sees SLURM_PROCID=0 and the whole allocation's variables: only the processes of
// a Slurm step (srun) are ranks.
constexpr Launcher kSlurm{"Slurm's variables", "SLURM_PROCID", "SLURM_NTASKS", "", "SLURM_JOB_ID"};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(std::string_view name) const {
    return name.empty() ? std::nullopt : environment_(std::string(name));
  }

  std::optional<int> number(std::string_view name, int least, int most) const {
    const auto found = text(name);
    return found ? std::optional(parse(*found, name, least, most)) : std::nullopt;
  }

  static int parse(std::string_view text, std::string_view name, int least, int most) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require<BadInput>(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
                      "{}: found '{}', expected a whole number from {} to {}", name, text, least, most);
    return value;
  }

 private:
  const Environment& environment_;
};

constexpr int kMaxRanks = 1 << 20;

/// Reads a launcher's two variables; returns false if neither is set. Throws BadInput if only one is.
bool take(Launch& launch, const Launcher& launcher, const Reader& reader) {
  const bool has_rank = reader.text(launcher.rank).has_value(), has_ranks = reader.text(launcher.ranks).has_value();
  if (!has_rank && !has_ranks) return false;
  const auto [set, unset] =
      has_rank ? std::pair(launcher.rank, launcher.ranks) : std::pair(launcher.ranks, launcher.rank);
  require<BadInput>(has_rank && has_ranks, "{}: found '{}', but {} is not set: expected both of {} or neither", set,
                    *reader.text(set), unset, launcher.name);
  launch.ranks = *reader.number(launcher.ranks, 1, kMaxRanks);
  launch.rank = *reader.number(launcher.rank, 0, kMaxRanks);
  require<BadInput>(launch.rank < launch.ranks, "{}: found {}, expected less than {} = {}", launcher.rank, launch.rank,
                    launcher.ranks, launch.ranks);
  launch.by = fmt::format("{} ({})", launcher.name, launcher.rank);
  return true;
}

bool take_flags(Launch& launch, const LaunchFlags& flags) {
  if (!flags.rank && !flags.ranks) return false;
  require<BadInput>(flags.rank && flags.ranks, "{}: found {}, but {} is not given: expected both or neither",
                    flags.rank ? "the flag of the rank" : "the flag of the number of ranks",
                    flags.rank ? *flags.rank : *flags.ranks, flags.rank ? "that of their number" : "that of the rank");
  require<BadInput>(*flags.ranks >= 1 && *flags.rank >= 0 && *flags.rank < *flags.ranks,
                    "flags: found rank {} of {}, expected 0 or more and less than the number of ranks", *flags.rank,
                    *flags.ranks);
  launch.rank = *flags.rank;
  launch.ranks = *flags.ranks;
  launch.by = "flags";
  return true;
}

bool take_slurm(Launch& launch, const Reader& reader) {
  if (!reader.text(kSlurm.rank) || (reader.text(kSlurm.job) && !reader.text("SLURM_STEP_ID"))) return false;
  Launcher step = kSlurm;
  if (reader.text("SLURM_STEP_NUM_TASKS")) step.ranks = "SLURM_STEP_NUM_TASKS";
  return take(launch, step, reader);
}

/// Returns the number of ranks on this host by the launcher's variables; 0 if they do not say.
int ranks_here(const Launcher* launcher, const Launch& launch, const Reader& reader) {
  if (launcher == nullptr) return 0;
  if (const auto here = reader.number(launcher->ranks_here, 1, kMaxRanks)) return *here;
  // If srun uses PMI, this is the only variable with the number of nodes.
  if (const auto nodes = reader.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks)) return *nodes == 1 ? launch.ranks : 0;
  const auto nodes = launcher == &kSlurm ? reader.number("SLURM_NNODES", 1, kMaxRanks) : std::nullopt;
  return nodes == 1 ? launch.ranks : 0;
}

/// Returns a name that identifies the job on this host: the launcher's or, if it sets none, the number of the parent
/// process.
std::string job_name(const Launcher* launcher, const Reader& reader) {
  std::string name = launcher ? reader.text(launcher->job).value_or("") : "";
  if (const auto step = reader.text("SLURM_STEP_ID"); launcher == &kSlurm && step)
    name = fmt::format("{}.{}", name, *step);
  if (name.empty() || name == "none") name = fmt::format("started-by-{}", getppid());
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  return name;
}

void set_address(Launch& launch, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // [::1]:29500
  require<BadInput>(colon != std::string_view::npos && !host.empty(), "{}: found '{}', expected HOST:PORT",
                    launch.names.rendezvous, text);
  launch.host = host;
  launch.port = Reader::parse(text.substr(colon + 1), launch.names.rendezvous + "'s port", 1, 65535);
}

void find_meeting_place(Launch& launch, const Launcher* launcher, const Reader& reader) {
  const auto host = reader.text("MASTER_ADDR"), port = reader.text("MASTER_PORT");
  if (host || port) {
    require<BadInput>(host && port, "{}: found '{}', but {} is not set: expected both, or neither, or {}",
                      host ? "MASTER_ADDR" : "MASTER_PORT", host ? *host : *port, host ? "MASTER_PORT" : "MASTER_ADDR",
                      launch.names.rendezvous);
    require<BadInput>(!host->empty(), "MASTER_ADDR: found '', expected a host");
    launch.host = *host;
    launch.port = *reader.number("MASTER_PORT", 1, 65535);
    launch.served = reader.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    return;
  }
  if (launch.board) return;
  const int here = ranks_here(launcher, launch, reader);
  require<BadInput>(here == launch.ranks,
                    "{} ranks by {}: MASTER_ADDR and MASTER_PORT are not set and {}; expected {} HOST:PORT, "
                    "a free port on rank 0's host",
                    launch.ranks, launch.by,
                    here > 0 ? fmt::format("only {} of them are on this host", here)
                             : "nothing says that all of them are on one host",
                    launch.names.rendezvous);
  const std::string folder = reader.text("XDG_RUNTIME_DIR").value_or("");
  launch.port_file =
      fmt::format("{}/moetune-{}-{}.port", folder.empty() ? "/tmp" : folder, getuid(), job_name(launcher, reader));
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Launch find_launch(const LaunchFlags& flags, const Environment& environment) {
  const Reader reader(environment);
  Launch launch;
  require<BadInput>(flags.ranks_per_node >= 0, "{}: found {}, expected at least 1", flags.names.ranks_per_node,
                    flags.ranks_per_node);
  launch.ranks_per_node = flags.ranks_per_node;
  launch.names = flags.names;
  const Launcher* launcher = nullptr;
  bool found = take_flags(launch, flags);
  for (size_t i = 0; i < kLaunchers.size() && !found; ++i)
    if ((found = take(launch, kLaunchers[i], reader))) launcher = &kLaunchers[i];
  if (!found && take_slurm(launch, reader)) launcher = &kSlurm;
  if (const auto board = reader.number(LaunchBoard::kVariable, 0, 1 << 30); found && board) {
    launch.board = std::make_shared<LaunchBoard>(*board);
    launch.by = "launch";
  }

  launch.run = fmt::format("moetune/{}/", reader.text("TORCHELASTIC_RUN_ID").value_or("run"));
  if (!flags.rendezvous.empty())
    set_address(launch, flags.rendezvous);
  else if (launch.ranks > 1)
    find_meeting_place(launch, launcher, reader);
  return launch;
}

std::string describe(const Launch& launch) {
  const std::string who = fmt::format("rank {} of {} by {}", launch.rank, launch.ranks, launch.by);
  if (!launch.port_file.empty()) return fmt::format("{}, store on this host, port in {}", who, launch.port_file);
  if (launch.host.empty()) return launch.board ? who + ", store on this host" : who;
  return fmt::format("{}, {}store {}:{}", who, launch.served ? "the launcher's " : "", launch.host, launch.port);
}

}  // namespace moe
