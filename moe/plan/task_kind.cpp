#include "moe/plan/task_kind.h"

namespace moe {
namespace {

Op computed_op(TaskPart part) {
  switch (part) {
    case TaskPart::attention:
      return Op::attention;
    case TaskPart::gate:
      return Op::gemm;
    case TaskPart::experts:
    case TaskPart::shared_expert:
    case TaskPart::feed_forward:
      return Op::expert;
    default:
      return Op::none;
  }
}

}  // namespace

Op op_of(TaskKind kind) {
  switch (operation_of(kind)) {
    case TaskOperation::compute:
    case TaskOperation::compute_dx:
    case TaskOperation::compute_dw:
      return computed_op(part_of(kind));
    case TaskOperation::alltoall:
      return Op::alltoall;
    case TaskOperation::allgather:
      return Op::allgather;
    case TaskOperation::reducescatter:
      return Op::reducescatter;
    case TaskOperation::allreduce:
      return Op::allreduce;
    case TaskOperation::send:
      return Op::sendrecv;
    case TaskOperation::copy:
      return part_of(kind) == TaskPart::offload ? Op::host_copy : Op::copy;
    case TaskOperation::sum:
      return Op::copy;
    case TaskOperation::receive:  // the send has the price
      break;
  }
  return Op::none;
}

}  // namespace moe
