// Exports a plan as an execution trace of MLCommons' Chakra: GlobalMetadata, then a Node for each task, each preceded
// by its length (https://github.com/mlcommons/chakra, et_def.proto).
#include <cmath>
#include <optional>
#include <ostream>

#include "commands/exchange/formats.h"
#include "commands/exchange/protobuf.h"
#include "commands/exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/prices/pricer.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::exchange {
namespace {

// Field numbers of the messages.
namespace metadata {
constexpr int kVersion = 1, kAttribute = 2;
}
namespace node {
constexpr int kId = 1, kName = 2, kType = 3, kControl = 4, kData = 5, kStart = 6, kDuration = 7, kAttribute = 10;
constexpr uint64_t kComputation = 4, kCollective = 7;
}  // namespace node
namespace attribute {
constexpr int kName = 1, kDouble = 3, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29;
}
namespace collective {
constexpr uint64_t kAllReduce = 0, kAllGather = 2, kAllToAll = 6, kReduceScatter = 7;
}

constexpr std::string_view kSchema = "0.0.4";

Message attribute_of(std::string_view name) {
  Message a;
  a.text(attribute::kName, name);
  return a;
}
Message text_attribute(std::string_view name, std::string_view value) {
  return attribute_of(name).text(attribute::kString, value);
}
Message count_attribute(std::string_view name, double value) {
  return attribute_of(name).number(attribute::kInt64, static_cast<uint64_t>(std::llround(value)));
}

std::optional<uint64_t> collective_type(Op op) {
  switch (op) {
    case Op::alltoall:
    case Op::a2a_ep_esp:
      return collective::kAllToAll;
    case Op::allgather:
      return collective::kAllGather;
    case Op::reducescatter:
      return collective::kReduceScatter;
    case Op::allreduce:
      return collective::kAllReduce;
    default:
      return std::nullopt;
  }
}

void write_message(const Message& message, std::ostream& out) {
  std::string length;
  Message::append_varint(length, message.bytes().size());
  out << length << message.bytes();
}

Message metadata_of(const Plan& plan) {
  Message m;
  m.text(metadata::kVersion, kSchema);
  const auto add = [&](const Message& attribute) { m.message(metadata::kAttribute, attribute); };
  add(text_attribute("schema", fmt::format("moetune {}", plan.schedule)));
  add(count_attribute("degree_forward", plan.degree_forward));
  add(count_attribute("degree_backward", plan.degree_backward));
  add(count_attribute("ranks", plan.shape.parallel.ranks()));
  return m;
}

class NodeWriter {
 public:
  NodeWriter(const Plan& plan, const std::optional<Timeline>& timeline) : plan_(plan), timeline_(timeline) {
    before_.resize(plan.tasks().size(), -1);
    for (const Lane& lane : plan.structure->lanes)
      for (size_t i = 1; i < lane.queue.size(); ++i) before_[lane.queue[i]] = lane.queue[i - 1];
  }

  Message node_of(const Task& task) const {
    const Work& work = plan_.works[task.id];
    const auto type = collective_type(work.op);
    Message m;
    m.number(node::kId, static_cast<uint64_t>(task.id)).text(node::kName, task.name());
    m.number(node::kType, type ? node::kCollective : node::kComputation);
    const int before = before_[task.id];
    if (before >= 0) m.numbers(node::kControl, std::vector{before});
    m.numbers(node::kData, task.after);
    add_times(task, m);
    const auto add = [&](const Message& attribute) { m.message(node::kAttribute, attribute); };
    add(attribute_of("is_cpu_op").number(attribute::kBool, 0));
    add(text_attribute("lane", name_of(plan_.structure->lanes[task.lane].kind)));
    add(text_attribute("phase", name_of(task.phase)));
    if (type) {
      add(count_attribute("comm_type", static_cast<double>(*type)));
      add(count_attribute("comm_size", work.bytes));
      add(text_attribute("pg_name", name_of(task.group)));
      add(text_attribute("network", name_of(plan_.groups[task.group].network)));
      add(count_attribute("ranks", plan_.groups[task.group].size));
    } else {
      add(count_attribute("num_ops", work.flops));
      add(attribute_of("tensor_size").number(attribute::kUint64, static_cast<uint64_t>(std::llround(work.bytes))));
    }
    return m;
  }

 private:
  // Adds whole microseconds, and the exact seconds as an attribute.
  void add_times(const Task& task, Message& m) const {
    if (!timeline_) return;
    const double start = timeline_->start_s[task.id], seconds = timeline_->end_s[task.id] - start;
    m.number(node::kStart, static_cast<uint64_t>(std::llround(start * 1e6)));
    m.number(node::kDuration, static_cast<uint64_t>(std::llround(seconds * 1e6)));
    m.message(node::kAttribute, attribute_of("duration_s").real(attribute::kDouble, seconds));
  }

  const Plan& plan_;
  const std::optional<Timeline>& timeline_;
  std::vector<int> before_;  // for each task, the previous task on its lane; -1: none
};

}  // namespace

void write_chakra(const ExportOptions& options, std::ostream& out) {
  const NamedPlan named = plan_of(options);
  const int stages = named.plan.split().stages;
  require<BadInput>(stages == 1, "{}: found a plan of {} stages, expected one: the trace is every rank's", options.file,
                    stages);
  std::optional<Timeline> timeline;
  if (named.profile) {
    const LayerPricer pricer(*named.profile, named.plan.shape, {true, "chakra"});
    timeline = timeline_of(named.plan, price(pricer, named.plan), named.profile->contention);
    for (const PriceNote& note : pricer.notes()) log_info("chakra: " + note.text());
  } else {
    log_info("chakra: no --cluster prices the plan: its nodes have no times");
  }
  log_info(
      "chakra: the trace is every rank's; groups have a name and a size, ranks by number are not in it; an order "
      "on a lane is a control dependency");
  write_message(metadata_of(named.plan), out);
  const NodeWriter writer(named.plan, timeline);
  for (const Task& task : named.plan.tasks()) write_message(writer.node_of(task), out);
}

}  // namespace moe::exchange
