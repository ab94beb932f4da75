#pragma once
// One rank's side of the ops that microbench times: its buffers, groups and stream.
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "moe/comm/communicator.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/modules/module_run.h"
#include "moe/measure/ops/op_cases.h"
#include "moe/measure/ops/start_gate.h"
#include "moe/measure/wrong_elements.h"
#include "moe/tensor/tensor.h"

namespace moe::measure {

class RankOps {
 public:
  struct Place {
    DeviceKind device = DeviceKind::cpu;
    int gpu = 0;           // which one, modulo their number
    int threads = 1;       // of the CPU, to compute with
    int host_threads = 1;  // to fill buffers and to check them
  };
  /// Blocking; all ranks of `world` make theirs.
  RankOps(Communicator& world, const Place& place);

  /// Returns a number that the ranks of a collective's group share.
  int group_of(const OpCase& c) const;
  /// Makes the case's group, blocking where it is new, and its buffers, and fills them; what is received only
  /// `for_check`.
  void prepare(const OpCase& c, bool for_check);
  /// Says what else decides how a run begins.
  struct Begin {
    bool paced = true;          // of an emulated cluster
    int more = 0;               // iterations of other ops that are issued before this one may begin, on other lanes
    RankOps* beside = nullptr;  // whose op begins at the same moment; it was issued before
  };
  /// Blocks until all ranks are here, then enqueues the op `iterations` times.
  void begin(const OpCase& c, int iterations, const Begin& how);
  void finish() { stream_->synchronize(); }
  /// Says when the last run began and ended.
  double start_s() const { return start_->seconds(); }
  double end_s() const { return end_->seconds(); }

  /// Checks the result of what was run once since prepare().
  WrongElements check(const OpCase& c) const;
  int64_t take_overruns() { return overruns_.exchange(0); }

 private:
  Communicator* group(const RankGroup& ranks);
  int world_rank(int64_t member, const OpCase& c) const;
  void prepare_module(const OpCase& c);
  Math& math() const { return layer_device_ ? layer_device_->math() : cpu_math(); }
  void enqueue(const OpCase& c, Pace pace);
  void communicate(const OpCase& c, Pace pace);
  /// Returns whether the tensor was made anew, with zeros.
  bool make(Tensor& tensor, int64_t elements, DType dtype) const;
  template <class Value>
  void fill(TensorView tensor, Value value) const;
  template <class T>
  WrongElements check_collective(const OpCase& c) const;
  WrongElements check_gemm(int64_t dim) const;

  std::unique_ptr<Communicator> world_;
  std::map<RankGroup, std::unique_ptr<Communicator>> groups_;
  Communicator* group_ = nullptr;  // of the prepared case; null: this rank has no part in it
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: the CPU's
  std::unique_ptr<Stream> stream_;
  StartGate gate_;
  std::unique_ptr<Event> start_, op_start_, end_;  // of all iterations, of one, of all
  Tensor send_, receive_, third_;
  std::optional<bool> sent_sums_;  // whether send_ has what is summed
  std::string series_;
  std::map<std::string, std::unique_ptr<ModuleRun>> modules_;  // by key
  ModuleRun* module_ = nullptr;
  std::atomic<int64_t> overruns_{0};
  int64_t elements_ = 0;
  int rank_ = 0, host_threads_ = 1;
};

}  // namespace moe::measure
