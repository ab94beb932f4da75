#include "moe/schedule/task_output.h"

namespace moe::schedule {

Buffer buffer_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::dispatch:
      return Buffer::dispatched;
    case TaskKind::allgather:
      return Buffer::gathered;
    case TaskKind::copy:
      return Buffer::laid_out;
    case TaskKind::expert:
    case TaskKind::expert_dx:
      return Buffer::expert_out;
    case TaskKind::reducescatter:
      return Buffer::scattered;
    case TaskKind::allreduce:
      return Buffer::reduced;
    case TaskKind::exchange:
      return Buffer::exchanged;
    case TaskKind::sum:
      return Buffer::summed;
    case TaskKind::gather:
      return Buffer::home_gathered;
    case TaskKind::home_copy:
      return Buffer::home_laid_out;
    default:
      return Buffer::combined;
  }
}

}  // namespace moe::schedule
