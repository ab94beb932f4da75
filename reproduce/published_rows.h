#pragma once
// What others measured on real clusters: configs/published/*.csv, one reader a file. Each file names its source in its
// first lines.
#include <string>
#include <vector>

namespace moe::reproduce {

struct PublishedCollective {  // nccl
  std::string gpu, op;
  int ranks = 0;
  double bytes = 0, seconds = 0;
};
std::vector<PublishedCollective> published_collectives();

struct PublishedLayer {  // megatron-moe-layers
  std::string model, dispatcher;
  int tokens_a_rank = 0, model_dim = 0, hidden = 0, experts = 0, top_k = 0, shared_hidden = 0;
  int ranks_of_a_token = 0;  // at most: what the router's groups allow
  double forward_s = 0, backward_s = 0;
};
std::vector<PublishedLayer> published_layers();

struct PublishedExchange {  // deepep-h100: DeepEP's dispatch of so many tokens a rank
  int nodes = 0, tokens = 0, model_dim = 0, top_k = 0, experts = 0;
  double dispatch_s = 0;
};
std::vector<PublishedExchange> published_exchanges();

struct TraceTask {  // deepseek-train-trace: mean seconds of a task, and of the whole iteration
  std::string task, phase, stream;
  double seconds = 0;
};
std::vector<TraceTask> published_trace();

}  // namespace moe::reproduce
