#pragma once
// Finds this process's rank, the number of ranks, and where all of them meet: from flags, or from the variables that
// torchrun, mpirun and srun set.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "moe/base/launch_board.h"

namespace moe {

/// The names of the caller's settings in messages; a program with flags puts their names here.
struct LaunchNames {
  std::string rendezvous = "rendezvous", ranks_per_node = "ranks_per_node";
};

/// The caller's settings, which take precedence over any variable.
struct LaunchFlags {
  std::optional<int> rank = {}, ranks = {};
  std::string rendezvous = {};  // HOST:PORT
  int ranks_per_node = 0;       // how many ranks of a machine make a node; 0: nodes as found
  LaunchNames names = {};
};

/// Reads an environment variable; none if it isn't set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> environment_variable(const std::string& name);

struct Launch {
  int rank = 0, ranks = 1;
  std::string by = "itself";  // "torchrun's variables (RANK)", "flags"
  // Where the ranks meet: a store at host:port or, if `host` is empty, one at a loopback port that rank 0 writes onto
  // the board, or into port_file. Not set if there is only one rank.
  std::string host;
  int port = 0;
  std::string port_file;
  std::shared_ptr<LaunchBoard> board;  // of `launch`; null if something else started us
  bool served = false;                 // whether the launcher serves the store: rank 0 is a client like all others
  std::string run;                     // distinguishes this run's keys from others in that store
  int ranks_per_node = 0;
  LaunchNames names = {};
};

/// Returns this process's rank, the number of ranks and where they meet. Precedence: flags, RANK and WORLD_SIZE,
/// OMPI_COMM_WORLD_*, PMI_*, MV2_COMM_WORLD_*, SLURM_*; each sets both numbers or neither. The ranks meet at
/// `rendezvous`, else MASTER_ADDR and MASTER_PORT, else the board of `launch`, else, if all ranks are on one host, by a
/// port file named after the job. Throws BadInput naming the variable or flag, what was found and what was expected.
Launch find_launch(const LaunchFlags& flags, const Environment& environment = environment_variable);

/// Returns one line: "rank 3 of 8 by torchrun's variables (RANK), store 10.0.0.1:29500".
std::string describe(const Launch& launch);

}  // namespace moe
