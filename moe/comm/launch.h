#pragma once
// Finds this process's rank, the number of ranks and their rendezvous, from flags or from the variables that torchrun,
// mpirun and srun set.
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
  int ranks_per_node = 0;       // ranks per node; 0: each machine is a node
  LaunchNames names = {};
};

/// Returns the value of an environment variable; nullopt if it isn't set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> environment_variable(const std::string& name);

struct Launch {
  int rank = 0, ranks = 1;
  std::string by = "itself";  // source of both: "flags", "torchrun's variables (RANK)"
  // The rendezvous: a store at host:port or, if `host` is empty, at a loopback port that rank 0 writes to the board or,
  // if there is no board, to port_file. Not needed if there is only one rank.
  std::string host;
  int port = 0;
  std::string port_file;
  std::shared_ptr<LaunchBoard> board;  // board of the command `launch`; null if another launcher started us
  bool served = false;                 // the launcher serves the store, so rank 0 is a client too
  std::string run;                     // prefix of this run's keys in the store
  int ranks_per_node = 0;
  LaunchNames names = {};
};

/// Returns this process's rank, the number of ranks and their rendezvous. Precedence: flags, RANK and WORLD_SIZE,
/// OMPI_COMM_WORLD_*, PMI_*, MV2_COMM_WORLD_*, SLURM_*; each sets both numbers or neither. The ranks meet at
/// `rendezvous`, else MASTER_ADDR and MASTER_PORT, else the board of `launch`, else, if all ranks are on one host, by a
/// port file named after the job. Throws BadInput naming the variable or flag, what was found and what was expected.
Launch find_launch(const LaunchFlags& flags, const Environment& environment = environment_variable);

/// Returns one line: "rank 3 of 8 by torchrun's variables (RANK), store 10.0.0.1:29500".
std::string describe(const Launch& launch);

}  // namespace moe
