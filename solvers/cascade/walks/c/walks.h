/* Walks among list schedules in C: what the files here share.
 *
 * groups.c, lists.c and changes.c do what quick_groups.py, quick_list.py and changes.py do, and walks.c
 * what plain.py does, number by number: a test holds them together. Times are microseconds, groups are
 * masks of the devices of a node.
 */

#ifndef ARACHNE_WALKS_H
#define ARACHNE_WALKS_H

#include <stdint.h>

#define WALKS_VERSION 3
#define NEVER_US ((int64_t)1 << 62)

/* Tasks between two states of the slots that are kept. */
#define KEPT_EVERY 8

typedef uint64_t Mask;

/* When a device is free, and behind it, in so many bits, its number in its node. */
typedef int64_t Slot;
#define SLOT_BITS 6
#define TIME_US(slot) ((slot) >> SLOT_BITS)
#define DEVICE(slot) ((slot) & (((Slot)1 << SLOT_BITS) - 1))

typedef struct {
    int64_t bandwidth, latency_us;
} Link;

typedef struct {
    int64_t duration_us, least_us, quickest_us;
    int32_t degree, kind;
} Mode;

typedef struct {
    const Mode *modes;
    const int32_t *predecessors, *successors;
    int64_t input_bytes;
    int32_t cascade, mode_count, drawn_count, first_mode, predecessor_count, successor_count;
} Task;

typedef struct {
    Link intra;
    const int32_t *nic;
    int32_t kind, size, zone;
} Node;

typedef struct {
    int32_t first, count;
} Cascade;

typedef struct {
    Task *tasks;
    Node *nodes;
    Cascade *cascades;
    Mode *modes;
    int32_t *numbers; /* predecessors, successors and NIC groups */
    Mask *rails;      /* devices of a node on a NIC group */
    int64_t *ppm;     /* penalty by shared and most NIC groups */
    Link *between;    /* of two zones */
    Link inter;
    int32_t task_count, mode_count, node_count, cascade_count, kind_count, nic_count, zone_count;
    int32_t widest, longest_group; /* devices of a node, nodes of a group at most */
    int32_t waits;
} Problem;

/* Sums after some tasks of an order: idle and penalties are lost, areas are at least. */
typedef struct {
    int64_t makespan_us, sum_us, lost_us, area_us;
} Sums;

typedef struct {
    int64_t *ends_us, *spans_us;
    int32_t *order, *picks, *sites, *held;
    int32_t *group_size, *group_node; /* longest_group entries for each task */
    Mask *group_mask;
    Sums *after; /* so many tasks */
    int32_t count;
} Listing;

/* Of a task that is held: its group, with longest_group entries. */
typedef struct {
    int32_t *picks, *sites, *held;
    int64_t *priority;
    int32_t *group_size, *group_node;
    Mask *group_mask;
} Choice;

typedef struct {
    int32_t task, pick, site, held;
    int64_t priority;
} Undo;

typedef struct {
    int32_t size, node;
} Room;

typedef struct {
    int64_t start_us, span_us, waste_us;
    int32_t size;
    int32_t *node;
    Mask *mask;
} Offer;

typedef struct {
    const Problem *problem;
    double *odds; /* of modes, added up task by task; NULL for equal odds */
    uint64_t chance;
    /* Nodes of each type that the walker has, the rows of its slots; no row is -1. */
    int32_t *nodes_of_kind, *first_of_kind, *row_of_node;
    int32_t device_count, slot_count;
    /* Sorted slots of each node, and what they were before every so many tasks of where it is. */
    Slot *slots, *kept;
    int32_t kept_count;
    /* Tasks of the trial that are placed as where it is, and those before that are in both. */
    int32_t alike, shared;
    Choice choice, other_choice, best_choice;
    Listing now, trial;
    int64_t best_makespan_us, best_sum_us;
    int32_t *best_order;
    int32_t best_count;
    int64_t *after_us, *late_us, *pool_us, *need_us, *task_start_us;
    int32_t pool_count;
    int32_t *late;
    int32_t late_count, late_known;
    Undo *undo;
    int32_t undo_count;
    Room *rooms;
    Offer here, wide, wider, same;
} Walker;

static inline const Sums *sums(const Listing *l)
{
    return &l->after[l->count];
}

/* Compilers call a function for this where they cannot assume the instruction. */
static inline int32_t bits_of(Mask mask)
{
    mask -= mask >> 1 & 0x5555555555555555u;
    mask = (mask & 0x3333333333333333u) + (mask >> 2 & 0x3333333333333333u);
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (int32_t)(mask * 0x0101010101010101u >> 56);
}

/* ---------------------------------------------------------------- chance.py */

static inline uint64_t next_bits(Walker *w)
{
    uint64_t z = (w->chance += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline double unit(Walker *w)
{
    return (double)(next_bits(w) >> 11) * 0x1p-53;
}

static inline int32_t below(Walker *w, int32_t count)
{
    return (int32_t)(unit(w) * count);
}

/* Not for others: a program may have functions of the same names. */
#pragma GCC visibility push(hidden)

/* ---------------------------------------------------------------- groups.c */

/* The group where a task ends first, NULL where the nodes have too few devices. */
const Offer *best_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t site);

/* The group that a task is held on, once its devices are free. */
const Offer *held_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t task);

/* Makes devices of a node free from a time on. */
void occupy(Walker *w, int32_t node, Mask mask, int64_t end_us);

/* ---------------------------------------------------------------- lists.c */

/* Puts what orders a running cascade and what follows its tasks into late_us and after_us. */
void measure_cascade(Walker *w, const Cascade *row);

/* The schedule of the trial's tasks as the choice has them; 0 where it ends after a time. */
int decode(Walker *w, int64_t most_us);

/* The trial is where the walk is from now on. */
void take_trial(Walker *w);

/* ---------------------------------------------------------------- changes.c */

/* A task of where the walk is, often one that delays the end. */
int32_t some_task(Walker *w);

/* Changes the choice; whether anything is other than before. */
int change(Walker *w);

/* Measures the cascades of what was changed. */
void measure_changed(Walker *w);

/* Takes the changes back. */
void take_back(Walker *w);

#pragma GCC visibility pop

#endif
