#pragma once
// Runs the tasks of a whole iteration's plan on one rank. LayerBinding and DenseBinding run a layer's passes over a
// micro-batch; this class adds the tasks outside of them, such as sums of gradient slices, which may span several
// layers, and transfers between stages.
//
// A gradient task sums the gradients of its own iteration, so all gradients are complete after one pass.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/exec/executor.h"
#include "moe/layer/binding.h"
#include "moe/stack/layer_stack.h"

namespace moe {

/// The plans of single layers that make up a whole plan: one for each layer and micro-batch, with the layer's case.
struct CellPlans {
  explicit CellPlans(const Plan& whole);
  const Plan& at(int layer, int micro_batch) const { return plans[layer][micro_batch]; }

  std::vector<std::vector<Plan>> plans;  // [layer][micro-batch]
  std::vector<int> cell_task_id;         // by task id: the task's id in its layer's plan; -1: in no layer's plan
};

/// Throws Unsupported naming a feature of the plan that a stack can't run: gradients of a model's ends, chunks that mix
/// (chunk_counts_of).
void require_stack_runs(const Plan& plan);

/// The tasks of a model's plan outside its layers: the model's ends, with the sums of their norms and the gathers of
/// their weights, and the norm and optimizer tasks, some of which run on the host.
class ModelTasks {
 public:
  virtual ~ModelTasks() = default;
  /// Enqueues a task. An optimizer task is issued only when its layer's gradients are complete.
  virtual void issue(const Task& task, CommCall call) = 0;
};

class StackBinding : public Binding {
 public:
  /// Binds a plan, whose structure is shared, to `stack`, which must outlive the binding. `device` makes the streams
  /// that send data to other stages. Throws WrongResult naming the difference unless the plan has the stack's case,
  /// layers, micro-batches and memory slots, and includes the step phase. `model` is needed for a plan with a
  /// vocabulary, and must outlive the binding; without it, optimizer tasks do nothing.
  StackBinding(LayerStack& stack, const Plan& plan, Device& device, ModelTasks* model = nullptr);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override;
  bool can_issue_ahead() const override { return plan_.shape.layer.capacity_factor.has_value(); }

 private:
  struct Place {                 // data for the execution of a task
    Binding* cell = nullptr;     // binding of the task's layer; null if the task is in no layer's pass
    const Task* task = nullptr;  // the task in the cell's plan
    std::string name = {};
    TensorView data = {};               // data that the task sums, sends or receives
    std::unique_ptr<Event> ready = {};  // for a send: its data are ready; for a store that completes
                                        // gradients: their squares may be summed
    TensorView window = {};             // for offloaded experts: weights that the task fetches or reads
  };

  void begin_pass();
  void add_cells();
  void set_into();
  void add_place(const Task& task, Device& device);
  void add_window(const Task& task, Place& place);
  TensorView summed(const Task& task) const;
  void issue_step(const Task& task, CommCall call);
  void fetch(const Task& task, Stream& stream);
  void store(const Task& task, Stream& stream);
  bool offloads() const { return plan_.shape.parallel.offload == Offload::experts; }
  void sum_remaining_gradients(const Task& task, Stream& stream);
  void sum_of_layer(int layer, Stream& stream);
  void sum_experts(int layer, Stream& stream);
  bool completes_experts(int layer) const;
  TensorView experts_of(int layer) const;
  /// Returns the tensor that the stage sends or receives in the task's phase and micro-batch.
  TensorView boundary_tensor(const Task& task) const;

  LayerStack& stack_;
  ModelTasks* model_;
  Plan plan_;
  CellPlans cell_plans_;
  std::vector<std::vector<std::unique_ptr<Binding>>> cells_;  // [index among the stage's layers][micro-batch]
  std::vector<Place> places_;                                 // by task id; empty for tasks of other stages
  std::array<int, kWindowLayers> fetched_{-1, -1};  // layer in each place of the window; for the constructor only
  int first_task_ = -1;
  bool sums_dense_ = false, sums_experts_ = false, sums_alike_ = false;  // true if this stage has tasks for it
  EnumArray<Phase, std::unique_ptr<Stream>, 2> leaving_;                 // streams of sends to other stages
};

}  // namespace moe
