#include "moe/comm/store/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <functional>
#include <ifaddrs.h>
#include <limits>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "moe/device/stream.h"

namespace moe::store {
namespace {

struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

// Returns every address that the name has, IPv4 and IPv6.
std::vector<Resolved> resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  require<BadInput>(error == 0, "store address {}:{}: {}", address.host, address.port, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<Resolved> all;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    Resolved& next = all.emplace_back();
    std::memcpy(&next.address, candidate->ai_addr, candidate->ai_addrlen);
    next.size = candidate->ai_addrlen;
  }
  return all;
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

Resolved own_address(int socket) {
  Resolved own;
  own.size = sizeof own.address;
  getsockname(socket, own.get(), &own.size);
  return own;
}

bool accepts(const Resolved& address, double deadline_s) {
  const FileDescriptor socket(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(socket.get(), address.get(), address.size) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(std::max(0.0, deadline_s - now_s()) * 1e3)) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// Listens on the first of the name's addresses that this machine has.
Listener listener_on_one(const Address& address) {
  int error = 0;
  for (const Resolved& one : resolve(address)) {
    Listener listener{FileDescriptor(::socket(one.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    const int on = 1;  // allows ports that an earlier run left in TIME_WAIT
    if (listener.socket.get() >= 0 &&
        setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener.socket.get(), one.get(), one.size) == 0 && listen(listener.socket.get(), 1024) == 0)
      return listener;
    error = errno;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;  // another program may have the port on this machine
  }
  bad_input("store address {}:{}: rank 0 can't listen there: {}", address.host, address.port, std::strerror(error));
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

Listener listen_on(const Address& address) {
  Listener listener = listener_on_one(address);
  const Resolved own = own_address(listener.socket.get());
  listener.port = ntohs(own.address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(own.get())->sin_port
                                                         : reinterpret_cast<const sockaddr_in6*>(own.get())->sin6_port);
  return listener;
}

bool wait_for_listener(const Address& address, double deadline_s) {
  const std::vector<Resolved> all = resolve(address);
  // Limits the time for each of several addresses, so that one without an answer leaves time for the others.
  const double patience_s = all.size() > 1 ? 1 : std::numeric_limits<double>::infinity();
  const auto answers = [&](const Resolved& one) { return accepts(one, std::min(deadline_s, now_s() + patience_s)); };
  for (auto pause = std::chrono::milliseconds(1); std::ranges::none_of(all, answers);) {
    if (now_s() > deadline_s) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
  return true;
}

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !(entry->ifa_flags & IFF_UP)) continue;
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr))
        continue;
      found.push_back({entry->ifa_name, text_of(entry->ifa_addr), (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

std::string loopback_address() {
  const auto all = interfaces();
  const auto found = std::ranges::find_if(all, &Interface::loopback);
  return found == all.end() ? "127.0.0.1" : found->address;
}

// Connecting a datagram socket sends nothing: it only asks for the route.
std::string address_towards(const Address& address) {
  for (const Resolved& one : resolve(address)) {
    const FileDescriptor socket(::socket(one.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (connect(socket.get(), one.get(), one.size) == 0) return text_of(own_address(socket.get()).get());
  }
  return {};
}

}  // namespace moe::store
