#pragma once
// Starts the threads of the suite.
#include <latch>
#include <memory>
#include <new>
#include <pthread.h>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "moe/base/check.h"

namespace moe {

/// Names the calling thread; the kernel keeps 15 characters.
inline void name_thread(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

/// Frees the memory that a program's std::new_handler reserves for its last messages, if it has one.
inline void release_memory_reserve() {
  const std::new_handler handler = std::get_new_handler();
  if (handler == nullptr) return;
  try {
    handler();
  } catch (const std::bad_alloc&) {  // thrown by a handler that has no more memory to free
  }
}

/// Throws RankFailure, naming the thread, if address space is limited (ulimit -v) and the thread would leave too little
/// of it for libraries, which crash if a small allocation fails. Returns whether it is limited.
bool require_room_for_thread(const std::string& name);
/// Allocates once, because glibc then reserves the address space of the calling thread's later allocations.
void reserve_heap_of_thread();

/// Starts a thread that runs `body()`, or `body(std::stop_token)`. Throws RankFailure, naming the thread, if the system
/// can't start another thread.
template <class Body>
std::jthread start_thread(const std::string& name, Body body) {
  // If address space is limited, wait until this thread has reserved its heap before the next one is started.
  const auto has_room = require_room_for_thread(name) ? std::make_shared<std::latch>(1) : nullptr;
  try {
    std::jthread thread([name, has_room, body = std::move(body)](const std::stop_token& stop) mutable {
      name_thread(name);
      if (has_room) {
        reserve_heap_of_thread();
        has_room->count_down();
      }
      if constexpr (std::is_invocable_v<Body&, std::stop_token>)
        body(stop);
      else
        body();
    });
    if (has_room) has_room->wait();
    return thread;
  } catch (const std::system_error& error) {
    release_memory_reserve();
    throw RankFailure(fmt::format("thread '{}' cannot start: {}; expected room for more (ulimit -v, ulimit -u)", name,
                                  error.code().message()));
  }
}

}  // namespace moe
