#include "cli/errors.h"

#include <cstdio>

#include "moe/base/check.h"

namespace moe {
namespace {

int report(const std::exception& error, int code) {
  fmt::print(stderr, "moetune: {}\n", error.what());
  return code;
}

}  // namespace

int guarded(const std::function<int()>& body) {
  try {
    const int code = body();
    if (std::fflush(stdout) != 0) {
      fmt::print(stderr, "moetune: stdout: cannot be written\n");
      return kBadInput;
    }
    return code;
  } catch (const BadInput& error) {
    return report(error, kBadInput);
  } catch (const WrongResult& error) {
    return report(error, kWrongResult);
  } catch (const RankFailure& error) {
    return report(error, kRankFailure);
  } catch (const std::exception& error) {
    return report(error, 1);
  }
}

}  // namespace moe
