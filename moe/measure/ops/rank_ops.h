#pragma once
// One rank's side of the ops that microbench times: its buffers, groups and stream.
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/stream.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/core_probe.h"
#include "moe/measure/modules/module_run.h"
#include "moe/measure/ops/op_cases.h"
#include "moe/measure/wrong_elements.h"
#include "moe/tensor/tensor.h"

namespace moe::measure {

/// Keeps a device idle while the host issues the work to be timed, so that a sample has the device's time only. A
/// stream that is a thread needs no gate: issuing is faster than its work.
class StartGate {
 public:
  explicit StartGate(Stream& lane) : lane_(lane), closed_(lane.make_event()) {}

  /// Delays all work that the lane is given from now on until the time has passed in which `launches` launches are
  /// issued. Only time opens the gate, whatever the host does. Does nothing if launch() does not call its work at once.
  void close(int launches);
  /// Stays closed until `first` opens, which was closed before on another lane of the device.
  void close_with(StartGate& first);

  /// Returns the seconds that a gate stays closed: 0.5 ms and 50 us per launch, at most 20 ms, because a device accepts
  /// no more than some hundred launches ahead.
  static double seconds_for(int launches);

 private:
  Stream& lane_;
  std::unique_ptr<Event> closed_;
  double seconds_ = 0;
};

class RankOps {
 public:
  struct Place {
    DeviceKind device = DeviceKind::cpu;
    int gpu = 0;           // index of the GPU, modulo the number of GPUs
    int threads = 1;       // CPU threads that compute
    int host_threads = 1;  // CPU threads that fill and check buffers
  };
  /// Blocking; all ranks of `world` make theirs.
  RankOps(Communicator& world, const Place& place);

  /// Returns a number that is equal on the ranks of a collective's group.
  int group_of(const OpCase& c) const;
  /// Makes the case's group, blocking if it is new, and its buffers, and fills them; buffers that receive are filled
  /// only `for_check`.
  void prepare(const OpCase& c, bool for_check);
  /// Other conditions of a run's beginning.
  struct Begin {
    bool paced = true;          // on an emulated cluster
    int more = 0;               // iterations of other ops, on other lanes, that are issued before this one may begin
    RankOps* beside = nullptr;  // runs an op that begins at the same moment; it was issued before
  };
  /// Blocks until all ranks are here, then enqueues the op `iterations` times.
  void begin(const OpCase& c, int iterations, const Begin& how);
  void finish() { stream_->synchronize(); }
  /// Returns when the last run began and ended.
  double start_s() const { return start_->seconds(); }
  double end_s() const { return end_->seconds(); }

  /// Checks the result of the one run since prepare().
  WrongElements check(const OpCase& c) const;
  int64_t take_overruns() { return overruns_.exchange(0); }

 private:
  Communicator* group(const RankGroup& ranks);
  int world_rank(int64_t member, const OpCase& c) const;
  void prepare_module(const OpCase& c);
  void prepare_phases(const OpCase& c);
  void prepare_dispatcher(const OpCase& c);
  Math& math() const { return layer_device_ ? layer_device_->math() : cpu_math(); }
  void enqueue(const OpCase& c, Pace pace);
  void communicate(const OpCase& c, Pace pace);
  /// Runs an saa: exchanges on the op's stream, gathers on another.
  void communicate_in_phases(const OpCase& c, Pace pace);
  /// Returns whether the tensor was newly made, with zeros.
  bool make(Tensor& tensor, int64_t elements, DType dtype) const;
  template <class Value>
  void fill(TensorView tensor, Value value) const;
  /// Returns the node whose slice arrives in a phase of an saa.
  int source_node(const OpCase& c, int64_t phase) const;
  /// Compares the first `elements` elements of `tensor`.
  template <class T, class Value>
  WrongElements check_values(const Tensor& tensor, int64_t elements, Value expected_at) const;
  template <class T>
  WrongElements check_collective(const OpCase& c) const;
  template <class T>
  WrongElements check_phases(const OpCase& c) const;
  WrongElements check_gemm(int64_t dim) const;
  /// Makes the host's memory that a host_copy reads, with known values.
  void prepare_host(const OpCase& c);
  template <class T>
  WrongElements check_host_copy(const OpCase& c) const;

  std::unique_ptr<Communicator> world_;
  std::map<RankGroup, std::unique_ptr<Communicator>> groups_;
  Communicator* group_ = nullptr;  // of the prepared case; null: this rank takes no part in it
  Communicator* node_ = nullptr;   // nodes' communicator for an saa's gathers
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: the CPU's
  std::unique_ptr<Stream> stream_;
  StartGate gate_;
  std::unique_ptr<Event> start_, op_start_, end_;  // of all iterations, of one, of all
  std::unique_ptr<Stream> gathers_;                // of an saa; null until there is one
  std::unique_ptr<Event> exchanged_, gathered_;    // a phase, all phases
  /// Of an alltoall that is not direct, and what it was made for.
  struct Dispatched {
    std::unique_ptr<Dispatcher> dispatcher;
    std::string series;
    int64_t most_bytes = 0;
  } dispatched_;
  Tensor send_, receive_, third_;
  Memory host_;                    // that host copies read
  std::optional<bool> sent_sums_;  // whether send_ has values to be summed
  std::string series_;
  std::map<std::string, std::unique_ptr<ModuleRun>> modules_;  // by key
  ModuleRun* module_ = nullptr;
  std::atomic<int64_t> overruns_{0};
  int64_t elements_ = 0;
  int rank_ = 0, host_threads_ = 1;
};

// Runs ops on all ranks, one after the other or two at once. If ranks are processes, rank 0's process leads: the others
// follow its commands, so that its decisions by the clock are the same everywhere.

/// One op's times and errors, over all ranks.
struct OpSample {
  std::vector<double> seconds;  // seconds of one iteration, by rank, divided by the dilation
  int64_t overruns = 0;
  WrongElements wrong;  // if it was checked
};

class OpRunner {
 public:
  /// Makes a runner, blocking; every process makes one, with the same cases, which have to outlive it.
  OpRunner(const BenchRanks& ranks, const std::vector<OpCase>& cases, double timeout_s);
  ~OpRunner();

  /// Runs an op; only for ranks that lead. Indices refer to the constructor's cases. `check`: the op is run once,
  /// unpaced, and its result is checked.
  OpSample run(size_t op, int iterations, bool check = false);
  /// Runs the op while `by` runs beside it on another stream, both from the same moment on.
  OpSample run_beside(size_t op, int iterations, size_t by, int by_iterations);
  /// Runs both from the same moment on, until the later one ends, and returns the seconds until then, whatever the
  /// iterations.
  OpSample run_both(size_t op, int iterations, size_t other, int other_iterations);

  /// Follows the leader's commands, on ranks that don't lead, until its runner is released. Throws what fails.
  void follow();
  /// Ends the others' follow(); this is the leader's last call.
  void release();

 private:
  struct Command;
  World& world() { return ranks_.processes ? *ranks_.processes : *threads_; }
  OpSample order(const Command& command);
  void tell(const Command& command);
  OpSample perform(const Command& command);
  void perform_on(int rank, const Command& command, std::vector<double>& times, std::string& wrong);
  size_t place(int rank) const { return static_cast<size_t>(rank - here_.front()); }

  const BenchRanks ranks_;
  const std::vector<OpCase>& cases_;
  std::optional<LocalWorld> threads_;
  std::vector<int> here_;
  std::vector<std::unique_ptr<RankOps>> ops_, beside_;  // by rank of this process
};

}  // namespace moe::measure
