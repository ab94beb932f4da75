#include "moe/base/launch_board.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "moe/base/check.h"

namespace moe {

// The content of the shared page; the system fills a new page with zeros.
struct LaunchBoard::Page {
  uint64_t kind;
  std::atomic<int> port, failed, speaking, said;
  char failure[201], first_said[201];
};

namespace {
constexpr uint64_t kKind = 0x6d6f6574756e6501;
}

LaunchBoard::LaunchBoard() : descriptor_(memfd_create("moetune-launch", 0)), owned_(true) {
  static_assert(std::atomic<int>::is_always_lock_free, "shared between processes");
  const bool made = descriptor_ >= 0 && ftruncate(descriptor_, sizeof(Page)) == 0;
  require<BadInput>(made, "launch: no memory to share with its ranks: {}", std::strerror(errno));
  map();
  page_->kind = kKind;
}

LaunchBoard::LaunchBoard(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  const bool fits = fstat(descriptor, &status) == 0 && status.st_size == sizeof(Page);
  if (fits) map();
  const bool ours = fits && page_->kind == kKind;
  if (fits && !ours) munmap(page_, sizeof(Page));
  require<BadInput>(ours, "{}: found '{}', which is nothing that launch made: expected it unset", kVariable,
                    descriptor);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

LaunchBoard::~LaunchBoard() {
  munmap(page_, sizeof(Page));
  if (owned_) close(descriptor_);
}

void LaunchBoard::map() {
  void* page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  require<BadInput>(page != MAP_FAILED, "launch: its memory can't be shared: {}", std::strerror(errno));
  page_ = static_cast<Page*>(page);
}

void LaunchBoard::post_port(int port) { page_->port = port; }
int LaunchBoard::port() const { return page_->port; }

void LaunchBoard::post_failure(const std::string& what) {
  if (page_->failed) return;
  what.copy(page_->failure, sizeof(Page::failure) - 1);
  page_->failed = 1;
}

bool LaunchBoard::is_first_report(const std::string& what) {
  int nobody = 0;
  if (page_->speaking.compare_exchange_strong(nobody, 1)) {
    what.copy(page_->first_said, sizeof(Page::first_said) - 1);
    page_->said = 1;
    return true;
  }
  for (int i = 0; page_->said == 0 && i < 1000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return page_->said == 0 || what.substr(0, sizeof(Page::first_said) - 1) != page_->first_said;
}

std::optional<std::string> LaunchBoard::failure() const {
  return page_->failed ? std::optional<std::string>(page_->failure) : std::nullopt;
}

}  // namespace moe
