#include "moe/base/threads.h"

#include <cstdlib>
#include <sys/mman.h>
#include <sys/resource.h>

namespace moe {

bool require_room_for_thread(const std::string& name) {
  constexpr size_t kStack = size_t{8} << 20;
  constexpr size_t kHeap = size_t{128} << 20;  // reserved by glibc when a thread first allocates
  constexpr size_t kSpare = size_t{64} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  constexpr size_t kRoom = kStack + kHeap + kSpare;
  void* room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    release_memory_reserve();
    throw RankFailure(
        fmt::format("thread '{}' cannot start: found less than {} MB of address space left; expected room "
                    "for more (ulimit -v)",
                    name, kRoom >> 20));
  }
  ::munmap(room, kRoom);
  return true;
}

void reserve_heap_of_thread() {
  void* volatile first = std::malloc(1);  // volatile, so that the compiler does not remove the allocation
  std::free(first);
}

}  // namespace moe
