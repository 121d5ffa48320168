/* Groups of devices: quick_groups.py in C. */

#include "walks.h"

#include <string.h>

#define NODES_TRIED 4
#define TIMES_TRIED 5
#define PPM 1000000

static int64_t scale_up(int64_t value, int64_t ppm)
{
    int64_t product;
    if (!__builtin_mul_overflow(value, ppm, &product) && product <= INT64_MAX - PPM)
        return (product + PPM - 1) / PPM;
    return (int64_t)(((__int128)value * ppm + PPM - 1) / PPM);
}

static const Slot *row_of(const Walker *w, int32_t node)
{
    return w->slots + (int64_t)w->row_of_node[node] * w->problem->widest;
}

static int32_t free_by(const Slot *row, int32_t size, int64_t when_us)
{
    int32_t count = 0;
    for (int32_t k = 0; k < size; k++)
        count += TIME_US(row[k]) <= when_us;
    return count;
}

/* The devices of some slots. */
static Mask mask_of(const Slot *row, int32_t from, int32_t to)
{
    Mask mask = 0;
    for (int32_t k = from; k < to; k++)
        mask |= (Mask)1 << DEVICE(row[k]);
    return mask;
}

void occupy(Walker *w, int32_t node, Mask mask, int64_t end_us)
{
    const int32_t size = w->problem->nodes[node].size;
    Slot *row = w->slots + (int64_t)w->row_of_node[node] * w->problem->widest;
    int32_t kept = 0;
    for (int32_t k = 0; k < size; k++) {
        const Slot slot = row[k];
        row[kept] = slot;
        kept += !(mask >> DEVICE(slot) & 1);
    }
    for (; mask; mask &= mask - 1) {
        const Slot slot = end_us << SLOT_BITS | __builtin_ctzll(mask);
        int32_t k = kept++;
        for (; k > 0 && row[k - 1] > slot; k--)
            row[k] = row[k - 1];
        row[k] = slot;
    }
}

/* A group of a node from the time on at which the node is free for it and the task is ready. */
static void at_node(Walker *w, int32_t node, int64_t ready_us, const Mode *mode, Offer *out)
{
    const Slot *row = row_of(w, node);
    const int32_t degree = mode->degree;
    const int64_t free_us = TIME_US(row[degree - 1]);
    const int64_t start_us = free_us > ready_us ? free_us : ready_us;
    const int32_t upto = free_by(row, w->problem->nodes[node].size, start_us);
    int64_t sum_us = 0;
    for (int32_t k = upto - degree; k < upto; k++)
        sum_us += TIME_US(row[k]);
    out->start_us = start_us;
    out->span_us = mode->duration_us;
    out->waste_us = degree * start_us - sum_us;
    out->size = 1;
    out->node[0] = node;
    out->mask[0] = mask_of(row, upto - degree, upto);
}

/* The node where a task starts first; of several one that has had enough room last. */
static int on_node(Walker *w, int64_t ready_us, const Mode *mode, Offer *out)
{
    const Problem *p = w->problem;
    const int32_t degree = mode->degree;
    Slot first_slot = INT64_MAX, last_slot = -1;
    int32_t first = -1, last = -1;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x];
        if (p->nodes[n].size < degree)
            continue;
        const Slot slot = w->slots[(int64_t)x * p->widest + degree - 1];
        if (slot < first_slot) {
            first_slot = slot;
            first = n;
        }
        if (TIME_US(slot) <= ready_us && slot > last_slot) {
            last_slot = slot;
            last = n;
        }
    }
    if (first < 0)
        return 0;
    at_node(w, TIME_US(first_slot) < ready_us ? last : first, ready_us, mode, out);
    return 1;
}

/* Devices on equal NIC groups of each node; 0 where the degree does not fit so. */
static int align(
    const Walker *w, const Room *const *chosen, int32_t count, int32_t degree, Mask *masks)
{
    const Problem *p = w->problem;
    struct {
        int32_t total, nic;
    } shared[64];
    Mask free_masks[count];
    int32_t found = 0, total = 0, used = 0;
    for (int32_t k = 0; k < count; k++)
        free_masks[k] = mask_of(row_of(w, chosen[k]->node), 0, chosen[k]->size);
    for (int32_t nic = 0; nic < p->nic_count; nic++) {
        int32_t sum = 0, k = 0;
        for (; k < count; k++) {
            const Mask part = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + nic];
            if (!part)
                break;
            sum += bits_of(part);
        }
        if (k < count)
            continue;
        int32_t at = found++;
        for (; at > 0 && shared[at - 1].total < sum; at--)
            shared[at] = shared[at - 1];
        shared[at].total = sum;
        shared[at].nic = nic;
    }
    while (used < found && total < degree)
        total += shared[used++].total;
    if (total < degree || used * count > degree)
        return 0;
    /* One device of each NIC group on each node first: they decide the overlap. */
    memset(masks, 0, sizeof(Mask) * count);
    for (int32_t r = 0; r < used; r++)
        for (int32_t k = 0; k < count; k++) {
            const Mask part =
                free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            masks[k] |= part & -part;
        }
    int32_t left = degree - used * count;
    for (int32_t r = 0; r < used && left; r++)
        for (int32_t k = 0; k < count && left; k++) {
            Mask spare = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            spare &= spare - 1;
            while (spare && left) {
                masks[k] |= spare & -spare;
                spare &= spare - 1;
                left--;
            }
        }
    return 1;
}

static void sort_group(Offer *group)
{
    for (int32_t k = 1; k < group->size; k++) {
        const int32_t node = group->node[k];
        const Mask mask = group->mask[k];
        int32_t at = k;
        for (; at > 0 && group->node[at - 1] > node; at--) {
            group->node[at] = group->node[at - 1];
            group->mask[at] = group->mask[at - 1];
        }
        group->node[at] = node;
        group->mask[at] = mask;
    }
}

/* Tries some nodes: count of them, as combinations of the first ones in order. */
static int aligned_of_count(
    const Walker *w, int32_t room_count, int32_t count, int32_t degree, Offer *out)
{
    const int32_t among_most = count > NODES_TRIED ? count : NODES_TRIED;
    const int32_t among = room_count < among_most ? room_count : among_most;
    if (count > among)
        return 0;
    int32_t at[count];
    const Room *chosen[count];
    for (int32_t k = 0; k < count; k++)
        at[k] = k;
    for (;;) {
        int32_t total = 0;
        for (int32_t k = 0; k < count; k++) {
            chosen[k] = &w->rooms[at[k]];
            total += chosen[k]->size;
        }
        if (total >= degree && align(w, chosen, count, degree, out->mask)) {
            out->size = count;
            for (int32_t k = 0; k < count; k++)
                out->node[k] = chosen[k]->node;
            sort_group(out);
            return 1;
        }
        if (count > NODES_TRIED)
            return 0;
        int32_t k = count - 1;
        while (k >= 0 && at[k] == among - count + k)
            k--;
        if (k < 0)
            return 0;
        at[k]++;
        for (k++; k < count; k++)
            at[k] = at[k - 1] + 1;
    }
}

/* A group among the devices free at a time; whether its NIC groups are aligned. */
static int free_group(Walker *w, const Mode *mode, int64_t start_us, Offer *out)
{
    const Problem *p = w->problem;
    int32_t room_count = 0, total = 0, least = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x];
        const int32_t size =
            free_by(w->slots + (int64_t)x * p->widest, p->nodes[n].size, start_us);
        if (!size)
            continue;
        int32_t at = room_count++;
        for (; at > 0 && w->rooms[at - 1].size < size; at--)
            w->rooms[at] = w->rooms[at - 1];
        w->rooms[at].size = size;
        w->rooms[at].node = n;
    }
    for (; least < room_count && total < mode->degree; least++)
        total += w->rooms[least].size;
    if (least < 2)
        least = 2;
    for (int32_t count = least; count <= least + 1; count++)
        if (aligned_of_count(w, room_count, count, mode->degree, out))
            return 1;
    /* Devices of the emptiest nodes, whatever their NIC groups. */
    int32_t left = mode->degree;
    out->size = 0;
    for (int32_t r = 0; left && r < room_count; r++) {
        const Room *room = &w->rooms[r];
        const int32_t count = left < room->size ? left : room->size;
        out->node[out->size] = room->node;
        out->mask[out->size++] =
            mask_of(row_of(w, room->node), room->size - count, room->size);
        left -= count;
    }
    sort_group(out);
    return 0;
}

static int64_t span_us(const Walker *w, const Mode *mode, const Offer *group)
{
    const Problem *p = w->problem;
    Mask shared = ~(Mask)0;
    int32_t widest = 0;
    if (group->size < 2)
        return mode->duration_us;
    for (int32_t k = 0; k < group->size; k++) {
        const Node *node = &p->nodes[group->node[k]];
        Mask nics = 0;
        for (Mask left = group->mask[k]; left; left &= left - 1)
            nics |= (Mask)1 << node->nic[__builtin_ctzll(left)];
        shared &= nics;
        if (bits_of(nics) > widest)
            widest = bits_of(nics);
    }
    const int64_t ppm = p->ppm[bits_of(shared) * (p->nic_count + 1) + widest];
    return scale_up(mode->duration_us, ppm);
}

/* The value with so many below or equal to it, by quickselect; disturbs the order. */
static int64_t nth_us(int64_t *us, int32_t count, int32_t nth)
{
    int32_t low = 0, high = count - 1;
    while (low < high) {
        const int64_t pivot = us[(low + high) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (us[i] < pivot)
                i++;
            while (us[j] > pivot)
                j--;
            if (i <= j) {
                const int64_t kept = us[i];
                us[i++] = us[j];
                us[j--] = kept;
            }
        }
        if (nth <= j)
            high = j;
        else if (nth >= i)
            low = i;
        else
            break;
    }
    return us[nth];
}

/* When a group over several nodes may start first: once its task is ready or enough devices are free,
 * never where that is too late. Times from then on at which more are free are left in the pool. */
static int64_t first_start_us(Walker *w, const Mode *mode, int64_t ready_us, int64_t least_us)
{
    const Problem *p = w->problem;
    int32_t free_count = 0, count = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const Slot *row = w->slots + (int64_t)x * p->widest;
        const int32_t size = p->nodes[w->nodes_of_kind[x]].size;
        int32_t k = free_by(row, size, ready_us);
        free_count += k;
        for (; k < size && TIME_US(row[k]) < least_us; k++)
            w->pool_us[count++] = TIME_US(row[k]);
    }
    w->pool_count = count;
    if (free_count >= mode->degree)
        return ready_us;
    if (free_count + count < mode->degree)
        return NEVER_US;
    return nth_us(w->pool_us, count, mode->degree - 1 - free_count);
}

/* The next time after one at which more devices are free. */
static int64_t next_start_us(const Walker *w, int64_t after_us)
{
    int64_t found = NEVER_US;
    for (int32_t k = 0; k < w->pool_count; k++)
        if (w->pool_us[k] > after_us && w->pool_us[k] < found)
            found = w->pool_us[k];
    return found;
}

static void swap_offers(Offer *a, Offer *b)
{
    const Offer kept = *a;
    *a = *b;
    *b = kept;
}

/* The best group over several nodes that ends before a time, left in w->wide; whether any does. */
static int across(Walker *w, int64_t ready_us, const Mode *mode, int64_t before_us)
{
    const Problem *p = w->problem;
    const int64_t quickest_us = mode->quickest_us, least_us = before_us - quickest_us;
    int64_t start_us = first_start_us(w, mode, ready_us, least_us);
    int found = 0;
    if (start_us >= least_us)
        return 0;
    for (int32_t tried = 0;; tried++) {
        if (before_us < NEVER_US && tried >= TIMES_TRIED)
            break;
        const int aligned = free_group(w, mode, start_us, &w->wider);
        const int64_t span = aligned ? quickest_us : span_us(w, mode, &w->wider);
        if (start_us + span < before_us) {
            int64_t sum_us = 0;
            before_us = start_us + span;
            for (int32_t g = 0; g < w->wider.size; g++) {
                const Slot *row = row_of(w, w->wider.node[g]);
                for (int32_t k = 0; k < p->nodes[w->wider.node[g]].size; k++)
                    if (w->wider.mask[g] >> DEVICE(row[k]) & 1)
                        sum_us += TIME_US(row[k]);
            }
            w->wider.start_us = start_us;
            w->wider.span_us = span;
            w->wider.waste_us = mode->degree * start_us - sum_us;
            swap_offers(&w->wide, &w->wider);
            found = 1;
        }
        if (start_us + quickest_us >= before_us)
            break;
        start_us = next_start_us(w, start_us);
        if (start_us >= least_us)
            break;
    }
    return found;
}

const Offer *best_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t site)
{
    int64_t before_us = NEVER_US;
    const Offer *found = NULL;
    if (site >= 0 && w->row_of_node[site] >= 0 && w->problem->nodes[site].kind == mode->kind &&
        w->problem->nodes[site].size >= mode->degree) {
        at_node(w, site, ready_us, mode, &w->here);
        return &w->here;
    }
    if (on_node(w, ready_us, mode, &w->here)) {
        found = &w->here;
        before_us = w->here.start_us + mode->duration_us;
    }
    const int32_t count = w->first_of_kind[mode->kind + 1] - w->first_of_kind[mode->kind];
    if (mode->degree > 1 && count > 1 && ready_us + mode->quickest_us < before_us &&
        across(w, ready_us, mode, before_us))
        found = &w->wide;
    return found;
}

const Offer *held_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t task)
{
    const int64_t at = (int64_t)task * w->problem->longest_group;
    Offer *out = &w->same;
    int64_t start_us = ready_us, sum_us = 0;
    out->size = w->choice.group_size[task];
    for (int32_t g = 0; g < out->size; g++) {
        const int32_t n = w->choice.group_node[at + g];
        const Mask mask = w->choice.group_mask[at + g];
        const Slot *row = row_of(w, n);
        out->node[g] = n;
        out->mask[g] = mask;
        for (int32_t k = 0; k < w->problem->nodes[n].size; k++) {
            if (!(mask >> DEVICE(row[k]) & 1))
                continue;
            sum_us += TIME_US(row[k]);
            if (TIME_US(row[k]) > start_us)
                start_us = TIME_US(row[k]);
        }
    }
    out->start_us = start_us;
    out->span_us = span_us(w, mode, out);
    out->waste_us = mode->degree * start_us - sum_us;
    return out;
}
