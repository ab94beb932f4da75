#pragma once
// One rank of the op benchmark: its buffers, groups and stream.
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

/// Keeps a device idle while the host issues the work to be timed, so that a sample has only the device's time. Not
/// needed for streams that are threads, because issuing is faster than their work.
class StartGate {
 public:
  explicit StartGate(Stream& lane) : lane_(lane), closed_(lane.make_event()) {}

  /// Delays all work issued to the lane from now on, for the time in which `launches` launches can be issued. The gate
  /// opens after this time, whatever the host does. Has no effect on streams that are threads.
  void close(int launches);
  /// Delays the lane until `first`, which was closed before on another lane of the device, opens.
  void close_with(StartGate& first);

  /// Returns the seconds that a gate stays closed: 0.5 ms plus 50 us per launch, but at most 20 ms, because a device
  /// queues no more than some hundred launches.
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
  /// Blocking: all ranks of `world` must create theirs.
  RankOps(Communicator& world, const Place& place);

  /// Returns a number that identifies this rank's group in a case: it is the same on all ranks of the group.
  int group_of(const OpCase& c) const;
  /// Creates the case's group (blocking if it is new) and buffers, and fills them; receive buffers only if `for_check`.
  void prepare(const OpCase& c, bool for_check);
  /// Further options of begin().
  struct Begin {
    bool paced = true;          // on an emulated cluster, the op is paced
    int more = 0;               // number of iterations of other lanes' ops that are issued before this op may begin
    RankOps* beside = nullptr;  // another lane's op, issued before, that begins at the same moment
  };
  /// Blocks until all ranks call it, then enqueues the op `iterations` times.
  void begin(const OpCase& c, int iterations, const Begin& how);
  void finish() { stream_->synchronize(); }
  /// These return the start and the end of the last run.
  double start_s() const { return start_->seconds(); }
  double end_s() const { return end_->seconds(); }

  /// Checks the result of the op, which must have run once since prepare().
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
  /// Runs an saa, with exchanges on the op's stream and gathers on another one.
  void communicate_in_phases(const OpCase& c, Pace pace);
  /// Returns whether a new tensor was allocated, which has zeros.
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
  /// Allocates the host memory that a host_copy reads and fills it with known values.
  void prepare_host(const OpCase& c);
  template <class T>
  WrongElements check_host_copy(const OpCase& c) const;

  std::unique_ptr<Communicator> world_;
  std::map<RankGroup, std::unique_ptr<Communicator>> groups_;
  Communicator* group_ = nullptr;  // group of the prepared case; null: this rank takes no part in it
  Communicator* node_ = nullptr;   // ranks of the node, for an saa's gathers
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: on the CPU
  std::unique_ptr<Stream> stream_;
  StartGate gate_;
  std::unique_ptr<Event> start_, op_start_, end_;  // start of all iterations, start of one op, end of all iterations
  std::unique_ptr<Stream> gathers_;                // stream of an saa's gathers; null until there is one
  std::unique_ptr<Event> exchanged_, gathered_;    // the exchange of a phase has ended; all gathers have ended
  /// The dispatcher of an alltoall that is not direct, with the series and size that it was created for.
  struct Dispatched {
    std::unique_ptr<Dispatcher> dispatcher;
    std::string series;
    int64_t max_bytes = 0;
  } dispatched_;
  Tensor send_, receive_, third_;
  Memory host_;                    // source of host copies
  std::optional<bool> sent_sums_;  // whether the values in send_ are those for sums
  std::string series_;
  std::map<std::string, std::unique_ptr<ModuleRun>> modules_;  // by key of the case
  ModuleRun* module_ = nullptr;
  std::atomic<int64_t> overruns_{0};
  int64_t elements_ = 0;
  int rank_ = 0, host_threads_ = 1;
};

// Runs ops on all ranks, one after the other or two at once. If ranks are processes, that of rank 0 leads and the
// others follow its commands, so that decisions that depend on its clock are the same everywhere.

/// One op's times and errors, over all ranks.
struct OpSample {
  std::vector<double> seconds;  // for each rank: seconds of one iteration, divided by the dilation
  int64_t overruns = 0;
  WrongElements wrong;  // set if the run was checked
};

class OpRunner {
 public:
  /// Blocking: every process must create one, with the same cases, which must outlive it.
  OpRunner(const BenchRanks& ranks, const std::vector<OpCase>& cases, double timeout_s);
  ~OpRunner();

  /// Runs an op; only for the leader. `op`: index into the constructor's cases. `check`: the op is run once, unpaced,
  /// and its result is checked.
  OpSample run(size_t op, int iterations, bool check = false);
  /// Runs an op while `by` runs on another stream; both begin at the same moment.
  OpSample run_beside(size_t op, int iterations, size_t by, int by_iterations);
  /// Runs two ops that begin at the same moment; returns the seconds of all iterations until the later one ends.
  OpSample run_both(size_t op, int iterations, size_t other, int other_iterations);

  /// On processes that don't lead: follows the leader's commands until its release(). Throws the error of a failed
  /// command.
  void follow();
  /// Ends follow() on the other processes; the leader's last call.
  void release();

 private:
  struct Command;
  World& world() { return ranks_.processes ? *ranks_.processes : *threads_; }
  OpSample order(const Command& command);
  void send_command(const Command& command);
  OpSample perform(const Command& command);
  void perform_on(int rank, const Command& command, std::vector<double>& times, std::string& wrong);
  size_t place(int rank) const { return static_cast<size_t>(rank - local_ranks_.front()); }

  const BenchRanks ranks_;
  const std::vector<OpCase>& cases_;
  std::optional<LocalWorld> threads_;
  std::vector<int> local_ranks_;
  std::vector<std::unique_ptr<RankOps>> ops_, beside_;  // for each rank of this process
};

}  // namespace moe::measure
